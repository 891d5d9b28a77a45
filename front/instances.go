package front

// Fixed returns a number of instances that does not change, for the field
// Instances of Failover and Prefetch.
func Fixed(n int64) func() int64 { return func() int64 { return n } }

// counted returns how many instances there are, at least 1, and 1 where nobody
// counts.
func counted(instances func() int64) int64 {
	if instances == nil {
		return 1
	}
	return max(1, instances())
}
