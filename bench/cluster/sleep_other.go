//go:build !linux

package main

import (
	"runtime"
	"time"
)

// preciseThread gives the caller a thread of its own. How precise sleep is
// depends on the system.
func preciseThread() { runtime.LockOSThread() }

func sleep(d time.Duration) { time.Sleep(d) }
