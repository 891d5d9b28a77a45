package main

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// preciseThread gives the caller a thread of its own, on which sleep is good to
// a few µs. Go's timers are good to a millisecond where a process is idle, which
// is twice what the delays here are.
func preciseThread() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0)
}

func sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	left := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&left, nil) // a signal may end it early: whoever sleeps asks the clock again
}
