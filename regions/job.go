package regions

import (
	"context"
	"fmt"
	"time"
)

// Bookkeeper is the part of the store that a Job uses.
type Bookkeeper interface {
	// Update shows the books to rebalance and keeps what that returns: all of it
	// or nothing, and before any other Update shows them. Where another Update is
	// under way, or there is nothing to do, it returns at once, and ran is false. Every is after how long since
	// shares were reckoned last they are due again; 0 means now.
	Update(ctx context.Context, every time.Duration, rebalance func(*Books) Changes) (ran bool, err error)
}

// Job moves shares between regions. Any number of them may run: each time, one
// of them does the work.
type Job struct {
	// Books are what it works on.
	Books Bookkeeper
	// Every is how often shares are reckoned from demand. What is under way goes
	// on with each Run. Default: each time.
	Every time.Duration
}

// Run does what can be done now, and returns what that was; nil where another job
// is at it or there is nothing to do. A Run that ends half-way has done nothing.
func (j Job) Run(ctx context.Context) (*Changes, error) {
	var made Changes
	ran, err := j.Books.Update(ctx, j.Every, func(books *Books) Changes {
		made = books.rebalance()
		return made
	})
	if err != nil {
		return nil, fmt.Errorf("rebalancing regions: %w", err)
	}
	if !ran {
		return nil, nil
	}
	return &made, nil
}
