package main

import "context"

// compareMemory returns the resident bytes of fresh gateways once each of so many
// tenants has sent a request, by the gateways' names.
func (l *laboratory) compareMemory(ctx context.Context, tenants int) (map[string]int64, error) {
	say("comparing memory at %s tenants", grouped(int64(tenants)))
	defer l.endGateways()
	fresh := cells(answerStatic, nameBare, nameAlone, namePeer)
	if err := l.start(ctx, fresh); err != nil {
		return nil, err
	}
	resident := make(map[string]int64, len(fresh))
	for _, c := range fresh {
		g := l.gateways[c.site]
		if err := g.touch(ctx, tenants); err != nil {
			return nil, err
		}
		used, err := g.usage()
		if err != nil {
			return nil, err
		}
		resident[c.name] = used.resident
	}
	return resident, nil
}
