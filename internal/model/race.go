//go:build race

package model

// usualTraces is fewer under the race detector, which makes sums of wide floats slow.
const usualTraces = 500
