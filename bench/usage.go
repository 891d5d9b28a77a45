package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// usage is what a process has used: processor time since its start, and the
// memory in use now, in bytes.
type usage struct {
	cpu      time.Duration
	resident int64
}

// tick is the unit of times in /proc on Linux, whatever the kernel's own is.
const tick = 10 * time.Millisecond

// usageOf reads a process' folder in /proc.
func usageOf(folder string) (usage, error) {
	stat, err := os.ReadFile(filepath.Join(folder, "stat"))
	if err != nil {
		return usage{}, err
	}
	cpu, err := cpuOf(string(stat))
	if err != nil {
		return usage{}, err
	}
	status, err := os.ReadFile(filepath.Join(folder, "status"))
	if err != nil {
		return usage{}, err
	}
	resident, err := residentOf(string(status))
	return usage{cpu, resident}, err
}

// cpuOf reads user and system time from /proc/PID/stat, whose second field, the
// command's name in parentheses, may hold anything.
func cpuOf(stat string) (time.Duration, error) {
	const user, system = 11, 12 // fields after the name
	fields := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:])
	if len(fields) <= system {
		return 0, errors.New("reading stat: it is too short")
	}
	var ticks int64
	for _, field := range []string{fields[user], fields[system]} {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading stat: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * tick, nil
}

// residentOf reads VmRSS from /proc/PID/status, which counts in KiB.
func residentOf(status string) (int64, error) {
	_, rest, found := strings.Cut(status, "\nVmRSS:")
	if !found {
		return 0, errors.New("reading status: it has no VmRSS")
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0, errors.New("reading status: VmRSS is blank")
	}
	kib, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("reading status: %w", err)
	}
	return kib << 10, nil
}
