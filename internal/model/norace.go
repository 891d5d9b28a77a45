//go:build !race

package model

// usualTraces is how many traces a test runs for each algorithm.
const usualTraces = 10_000
