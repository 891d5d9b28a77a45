package servertest

import "fmt"

// BulkReply returns text as a Redis bulk string, for FakeRedisServer.Answer.
func BulkReply(text string) []byte {
	return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text)
}
