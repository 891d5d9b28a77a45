package servertest

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
)

// postgresBinaries is where Debian keeps the binaries that it does not put in PATH.
const postgresBinaries = "/usr/lib/postgresql/*/bin"

// account is who owns a server's files and runs it; nil is who runs the tests.
type account struct{ uid, gid int }

// owner is the account for PostgreSQL, which does not run as root.
var owner = sync.OnceValue(func() *account {
	if os.Getuid() != 0 {
		return nil
	}
	for _, name := range []string{"postgres", "nobody"} {
		entry, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, _ := strconv.Atoi(entry.Uid)
		gid, _ := strconv.Atoi(entry.Gid)
		return &account{uid: uid, gid: gid}
	}
	return nil
})

func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	return os.Chown(path, a.uid, a.gid)
}

func (a *account) credential() *syscall.Credential {
	if a == nil {
		return nil
	}
	return &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
}

// files is a directory tree in memory; a name that ends in a slash is a folder.
type files struct {
	names    []string
	contents [][]byte
}

// postgresTemplate is a fresh data directory, made once per process: initdb
// takes a second, a copy of what it made a tenth. It is kept in memory, so that
// nothing has to be deleted when the process ends.
var postgresTemplate = sync.OnceValues(func() (*files, error) {
	dir, err := os.MkdirTemp("/tmp", "initdb")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := owner().own(dir); err != nil {
		return nil, err
	}
	binary, err := exec.LookPath("initdb")
	if err != nil {
		matches, _ := filepath.Glob(filepath.Join(postgresBinaries, "initdb"))
		if len(matches) == 0 {
			return nil, fmt.Errorf("initdb is not on this machine: install it with `apt-get install %s`, or run `make test`, which installs what is missing", postgresPackage)
		}
		binary = matches[len(matches)-1]
	}
	data := filepath.Join(dir, "data")
	cmd := postgresCommand(binary, "--pgdata", data, "--username", postgresUser, "--auth", "trust",
		"--encoding", "UTF8", "--locale", "C", "--wal-segsize", "1", "--no-sync", "--no-instructions")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("running initdb: %w\n%s", err, out)
	}
	return readFiles(data)
})

func readFiles(root string) (*files, error) {
	tree := new(files)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		var content []byte
		if entry.IsDir() {
			name += "/"
		} else if content, err = os.ReadFile(path); err != nil {
			return err
		}
		tree.names = append(tree.names, name)
		tree.contents = append(tree.contents, content)
		return nil
	})
	return tree, err
}

func (f *files) write(root string, owner *account) error {
	for i, name := range f.names {
		path := filepath.Join(root, name)
		var err error
		if name[len(name)-1] == '/' {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = os.WriteFile(path, f.contents[i], 0o600)
		}
		if err == nil {
			err = owner.own(path)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
