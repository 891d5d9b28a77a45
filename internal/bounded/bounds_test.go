package bounded

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBounds(t *testing.T) {
	t.Parallel()
	var inForce []int
	set := func(most int) { inForce = append(inForce, most) }
	var bounds Bounds
	first := bounds.Add(10, set)
	second := bounds.Add(20, set)
	third := bounds.Add(30, set)
	second()
	second()
	require.Equal(t, []int{10, 20, 30}, inForce, "a newer one is in force")
	third()
	first()
	first()
	require.Equal(t, []int{10, 20, 30, 10, 0}, inForce)
}

func TestFingerprints(t *testing.T) {
	t.Parallel()
	prints, others := NewFingerprints(), NewFingerprints()
	a, b := prints.Of([]byte("a")), prints.Of([]byte("b"))
	require.Equal(t, a, prints.Of([]byte("a")))
	require.NotEqual(t, a, b)
	require.NotEqual(t, a, others.Of([]byte("a")))
	require.NotEqual(t, a.hash(), b.hash())
	require.NotEqual(t, a[0], a[1], "the halves have seeds of their own")
}
