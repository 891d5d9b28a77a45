//go:build !linux

package due

import (
	"context"
	"errors"
)

// Run sends the load, on Linux.
func Run(context.Context, Load) (Report, error) {
	return Report{}, errors.New("sending requests at fixed times: only Linux can")
}
