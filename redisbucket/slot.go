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
	var crc uint16
	for _, b := range key {
		crc = crc<<8 ^ crc16[byte(crc>>8)^b]
	}
	return crc % slotCount
}

// crc16 is the table of CRC-16/XMODEM: polynomial 0x1021, most significant bit
// first, from 0.
var crc16 = makeCRC16()

func makeCRC16() (table [256]uint16) {
	const polynomial = 0x1021
	for i := range table {
		crc := uint16(i) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= polynomial
			}
		}
		table[i] = crc
	}
	return table
}
