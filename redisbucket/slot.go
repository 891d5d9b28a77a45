package redisbucket

import "bytes"

// slotCount is how many hash slots a Redis Cluster has.
const slotCount = 16384

// slotOf returns the hash slot of a key, as the Redis Cluster specification says:
// CRC16 of what stands between the first { and the next }, if that is not empty,
// else of the whole key, modulo 16384.
func slotOf(key []byte) uint16 {
	if _, rest, found := bytes.Cut(key, []byte("{")); found {
		if tag, _, closed := bytes.Cut(rest, []byte("}")); closed && len(tag) > 0 {
			key = tag
		}
	}
	return crc16(key) % slotCount
}

// crc16 is CRC-16/XMODEM: polynomial 0x1021, most significant bit first, from 0.
// Eight shifts by one bit are put together, as no bit of the polynomial meets
// another one's.
func crc16(data []byte) (crc uint16) {
	for _, b := range data {
		x := crc>>8 ^ uint16(b)
		x ^= x >> 4
		crc = crc<<8 ^ x<<12 ^ x<<5 ^ x
	}
	return crc
}
