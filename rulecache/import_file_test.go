package rulecache

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const csvHeader = "tenant_id,route_id,capacity,refill_per_second\n"

func TestReadImportCSV(t *testing.T) {
	t.Parallel()
	file, err := ReadImport(strings.NewReader("\ufeffroute_id,tenant_id,refill_per_second,capacity,mode,prefetch,shards,algorithm\r\n"+
		"create-order,shop-a,0.5,200,,auto,,\r\n"+
		"*,~guest,1e2,2e2,shadow,0,4,sliding_window_log\r\n\r\n"+
		`list,"a\b ""c"", d",10.0,1,,7,,`+"\r\n"), FormatCSV, nil)
	require.NoError(t, err)
	require.Equal(t, 3, file.Len())
	require.Equal(t, "shop-a\tcreate-order\t200\t0.5\t\\N\t\\N\tauto\t\\N\t\\N\t2\t0.5\n"+
		"~guest\t*\t200\t100\tsliding_window_log\tshadow\t0\t4\t\\N\t3\t100\n"+
		`a\\b "c", d`+"\tlist\t1\t10\t\\N\t\\N\t7\t\\N\t\\N\t5\t10\n", file.copied.String())
	require.Equal(t, []int32{2, 3, 5}, file.lines)
	require.Equal(t, 1, file.fractions.Count)
}

func TestReadImportJSONLines(t *testing.T) {
	t.Parallel()
	file, err := ReadImport(strings.NewReader(`{"tenant_id":"shop-a","route_id":"create-order","capacity":200,"refill_per_second":0.5,"concurrent":4}`+"\n\n"+
		`  {"mode":"deny","tenant_id":"a\tb","route_id":"*","capacity":2e2,"refill_per_second":1,"prefetch":"auto","shards":null}`), FormatJSONLines, nil)
	require.NoError(t, err)
	require.Equal(t, "shop-a\tcreate-order\t200\t0.5\t\\N\t\\N\t\\N\t\\N\t4\t1\t0.5\n"+
		"a\\tb\t*\t200\t1\t\\N\tdeny\tauto\t\\N\t\\N\t3\t1\n", file.copied.String())
	require.Equal(t, [columnCount]bool{
		columnTenant: true, columnRoute: true, columnCapacity: true, columnRefill: true, columnMode: true, columnPrefetch: true, columnShards: true, columnConcurrent: true,
	}, file.used)
}

// TestReadImportRefuses names the line and what is wrong with it.
func TestReadImportRefuses(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 65)
	for name, test := range map[string]struct{ format, file, want string }{
		"nothing":             {"csv", "", "the file is empty"},
		"no rule":             {"csv", csvHeader, "there is no rule in it"},
		"no object":           {"jsonl", "\n\n", "there is no rule in it"},
		"no header":           {"csv", "shop-a,a,1,1\n", `line 1: unknown column "shop-a": allowed are tenant_id, route_id, capacity`},
		"another separator":   {"csv", "tenant_id;route_id\n", `line 1: unknown column "tenant_id;route_id"`},
		"own column":          {"csv", "id,tenant_id,route_id,capacity,refill_per_second\n", `line 1: unknown column "id"`},
		"column missing":      {"csv", "tenant_id,route_id,capacity\n", "line 1: the column refill_per_second is missing"},
		"column twice":        {"csv", "tenant_id,tenant_id\n", "line 1: the column tenant_id is there twice"},
		"too few fields":      {"csv", csvHeader + "a,b,1,1\na,b\n", "line 3: it has 2 fields, and the header has 4"},
		"open quote":          {"csv", csvHeader + "a,b,1,1\n\"c,b,1,1\nd,b,1,1\n", "line 3: extraneous or missing \" in quoted-field; what follows was not read"},
		"no number":           {"csv", csvHeader + "a,b,many,1\n", `line 2: capacity "many" is not a number within bounds`},
		"no whole number":     {"csv", csvHeader + "a,b,1.5,1\n", `line 2: capacity "1.5" is not a whole number within bounds`},
		"NaN":                 {"csv", csvHeader + "a,b,1,NaN\n", "line 2: refill_per_second NaN is out of bounds"},
		"zero":                {"csv", csvHeader + "a,b,0,1\n", "line 2: capacity 0 is out of bounds: allowed are 1 to 2147483647"},
		"blank":               {"csv", csvHeader + "a,b,,1\n", `line 2: capacity "" is not a number`},
		"window":              {"csv", csvHeader + "a,b,1,0.0000000001\n", "is out of bounds: allowed are 1 ms to 10 years"},
		"empty tenant":        {"csv", csvHeader + ",b,1,1\n", "line 2: the tenant is empty"},
		"long tenant":         {"csv", csvHeader + long + ",b,1,1\n", "line 2: the tenant is too long: allowed are up to 64 characters"},
		"long route":          {"csv", csvHeader + "a," + long + ",1,1\n", "line 2: the route is too long"},
		"long number":         {"csv", csvHeader + "a,b," + strings.Repeat("9", 4000) + ",1\n", "9\" is not a whole number within bounds"},
		"route":               {"csv", csvHeader + "a,/orders,1,1\n", `line 2: the route "/orders" is neither a name`},
		"NUL":                 {"csv", csvHeader + "a\x00b,b,1,1\n", "line 2: the tenant holds a NUL"},
		"NUL in JSON":         {"jsonl", `{"tenant_id":"a\u0000","route_id":"b","capacity":1,"refill_per_second":1}`, "line 1: the tenant holds a NUL"},
		"half a pair":         {"jsonl", `{"tenant_id":"a\ud800","route_id":"b","capacity":1,"refill_per_second":1}`, "line 1: the tenant holds U+FFFD"},
		"lost character":      {"csv", csvHeader + "caf\ufffd,b,1,1\n", "line 2: the tenant holds U+FFFD"},
		"space":               {"csv", csvHeader + "a ,b,1,1\n", "line 2: the tenant begins or ends with white space"},
		"not UTF-8":           {"csv", csvHeader + "a\xff,b,1,1\n", "line 2: the tenant is not valid UTF-8"},
		"duplicate":           {"csv", csvHeader + "a,b,1,1\na,c,1,1\na,b,2,1\n", "line 4: duplicate: line 2 has the same tenant and route"},
		"algorithm":           {"csv", "tenant_id,route_id,capacity,refill_per_second,algorithm\na,b,1,1,leaky\n", `line 2: unknown algorithm "leaky"`},
		"mode":                {"csv", "tenant_id,route_id,capacity,refill_per_second,mode\na,b,1,1,off\n", `line 2: unknown mode "off"`},
		"prefetch":            {"csv", "tenant_id,route_id,capacity,refill_per_second,prefetch\na,b,1,1,-1\n", "line 2: prefetch -1 is out of bounds"},
		"shards":              {"csv", "tenant_id,route_id,capacity,refill_per_second,shards\na,b,1,1,17\n", "line 2: shards 17 is out of bounds"},
		"no JSON":             {"jsonl", "shop-a,b,1,1\n", "line 1: it is not a JSON object"},
		"an array":            {"jsonl", "[1]\n", "line 1: it is not a JSON object"},
		"half an object":      {"jsonl", `{"tenant_id":"a"` + "\n", "line 1: it is not a whole JSON object"},
		"two objects":         {"jsonl", `{"tenant_id":"a"}{}` + "\n", "line 1: something follows"},
		"unknown key":         {"jsonl", `{"tenant":"a"}` + "\n", `line 1: unknown column "tenant"`},
		"key twice":           {"jsonl", `{"tenant_id":"a","tenant_id":"b"}` + "\n", "line 1: the key tenant_id is there twice"},
		"a number as text":    {"jsonl", `{"capacity":"1"}` + "\n", "line 1: capacity is not a number"},
		"a text as number":    {"jsonl", `{"tenant_id":1}` + "\n", "line 1: tenant_id is not a text in quotes"},
		"an object as number": {"jsonl", `{"capacity":{}}` + "\n", "line 1: capacity is not a number"},
		"JSON not UTF-8":      {"jsonl", "{\"tenant_id\":\"\xff\"}\n", "line 1: it is not valid UTF-8"},
		"NULL":                {"jsonl", `{"tenant_id":"a","route_id":"b","capacity":null,"refill_per_second":1}`, "line 1: capacity is NULL"},
		"no tenant":           {"jsonl", `{"route_id":"b","capacity":1,"refill_per_second":1}`, "line 1: the tenant is empty"},
		"a long line":         {"jsonl", "\n" + strings.Repeat("x", maxImportLine+1), "line 2: it is longer than 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			format, err := ParseImportFormat(test.format)
			require.NoError(t, err)
			file, err := ReadImport(strings.NewReader(test.file), format, nil)
			require.Nil(t, file)
			require.ErrorContains(t, err, test.want)
		})
	}
}

// TestReadImportTellsTheFirstBadLines reads on after a bad line, and counts all.
func TestReadImportTellsTheFirstBadLines(t *testing.T) {
	t.Parallel()
	_, err := ReadImport(strings.NewReader(csvHeader+strings.Repeat("a,b,0,1\na,b\n", 10)), FormatCSV, nil)
	var bad *ImportError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, 20, bad.Count)
	require.Len(t, bad.Lines, 10)
	require.Equal(t, 11, bad.Lines[9].Line)
	require.ErrorContains(t, err, "20 lines are bad, the first is line 2: capacity 0")
}

func TestParseImportFormat(t *testing.T) {
	t.Parallel()
	_, err := ParseImportFormat("xml")
	require.EqualError(t, err, `unknown format "xml": allowed are csv, jsonl`)
}

// FuzzReadImport reads any text without a panic, and keeps only rules that a
// Source would take.
func FuzzReadImport(f *testing.F) {
	f.Add(csvHeader+"a,b,1,1\n", false)
	f.Add(`{"tenant_id":"a\tb","route_id":"b","capacity":1,"refill_per_second":1,"prefetch":"auto"}`, true)
	f.Fuzz(func(t *testing.T, text string, lines bool) {
		format := FormatCSV
		if lines {
			format = FormatJSONLines
		}
		file, err := ReadImport(strings.NewReader(text), format, nil)
		if err != nil {
			return
		}
		require.Equal(t, file.Len(), strings.Count(file.copied.String(), "\n"))
		require.Equal(t, file.Len()*10, strings.Count(file.copied.String(), "\t"))
	})
}
