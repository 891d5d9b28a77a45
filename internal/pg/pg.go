// Package pg holds one session to PostgreSQL: how its address is read, how it
// ends whatever the network does, and what goes wrong in words without secrets.
package pg
