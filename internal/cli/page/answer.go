package page

import (
	"compress/gzip"
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
)

//go:embed assets
var assetFiles embed.FS

// asset is a file of the page.
type asset struct {
	kind string
	body []byte
}

// The kinds of answers.
const (
	kindJSON = "application/json"
	kindHTML = "text/html; charset=utf-8"
)

// readAssets returns the page's files by their paths; the document's is blank.
func readAssets() (map[string]asset, error) {
	kinds := map[string]string{".html": kindHTML, ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".svg": "image/svg+xml"}
	files, err := fs.ReadDir(assetFiles, "assets")
	if err != nil {
		return nil, fmt.Errorf("reading the page: %w", err)
	}
	assets := make(map[string]asset, len(files))
	for _, file := range files {
		body, err := assetFiles.ReadFile("assets/" + file.Name())
		if err != nil {
			return nil, fmt.Errorf("reading the page: %w", err)
		}
		name := file.Name()
		if name == "index.html" {
			name = ""
		}
		assets[name] = asset{kinds[path.Ext(file.Name())], body}
	}
	return assets, nil
}

// answer is what a request gets.
type answer struct {
	status int // 0: 200
	kind   string
	body   []byte
}

// smallest is how many bytes are worth to be compressed.
const smallest = 1000

// write sends an answer, compressed where that helps: the way may be a slow tunnel.
func write(w http.ResponseWriter, r *http.Request, a answer) {
	w.Header().Set("Content-Type", a.kind)
	if a.status == 0 {
		a.status = http.StatusOK
	}
	if len(a.body) < smallest || !strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		w.Header().Set("Content-Length", strconv.Itoa(len(a.body)))
		w.WriteHeader(a.status)
		_, _ = w.Write(a.body) // who is gone needs no answer
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(a.status)
	out := gzip.NewWriter(w)
	_, _ = out.Write(a.body)
	_ = out.Close()
}

// tell answers with an error: as text to who opens an address, else as the admin API
// does.
func tell(w http.ResponseWriter, r *http.Request, status int, err error) {
	if r.Header.Get("Sec-Fetch-Dest") == "document" {
		write(w, r, answer{status, "text/plain; charset=utf-8", []byte(err.Error() + "\n")})
		return
	}
	body, _ := json.Marshal(map[string]string{"error": err.Error()}) // a text
	write(w, r, answer{status, kindJSON, body})
}
