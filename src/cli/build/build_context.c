/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/build/build_context.h"
#include "base/buf.h"
#include "base/dir.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/files/libarchive.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <linux/openat2.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { DEPTH_MAX = 64, IGNORE_MAX = 1 << 20, RULES_MAX = 4096, CONTEXT_CHUNK = 64 * 1024 };

struct ignore_rule {
    struct str pattern;
    bool keeps; /* "!pattern" */
};

/* What is read of one source. */
struct context_reading {
    build_context_seen_fn seen; /* NULL: nobody watches */
    void *seen_ctx;
    uint64_t bytes;
    void *into; /* the digest or the archive */
};

struct local_context {
    int fd;
    struct context_reading reading;
    char **paths; /* relative, sorted */
    size_t n, cap;
    struct buf ignore;
    struct ignore_rule rules[RULES_MAX];
    size_t n_rules;
};

/* ---- patterns ---- */

static bool part_matches(struct str pattern, struct str part)
{
    char p[512], s[512];
    if (pattern.n >= sizeof(p) || part.n >= sizeof(s))
        return false;
    memcpy(p, pattern.p, pattern.n);
    memcpy(s, part.p, part.n);
    p[pattern.n] = s[part.n] = '\0';
    return fnmatch(p, s, 0) == 0;
}

static bool matches(struct str pattern, struct str path, unsigned depth)
{
    struct str head, part;
    if (depth > DEPTH_MAX)
        return false;
    if (!pattern.n)
        return true; /* all of it is used up: the path, or what is below it */
    if (!path.n)
        return str_eqc(pattern, "**") || str_eqc(pattern, "**/");
    struct str rest = pattern, below = path;
    (void)str_split(&rest, '/', &head);
    (void)str_split(&below, '/', &part);
    rest = rest.p ? rest : STR("");
    below = below.p ? below : STR("");
    if (str_eqc(head, "**"))
        return matches(rest, path, depth + 1) || matches(pattern, below, depth + 1);
    return part_matches(head, part) && matches(rest, below, depth + 1);
}

bool build_context_matches(struct str pattern, struct str path)
{
    return pattern.n > 0 && matches(pattern, path, 0);
}

/* Without "./", slashes at both ends, as people write them. */
static struct str build_context_path(struct str s)
{
    while (str_starts(s, STR("./")) || (s.n && s.p[0] == '/'))
        s = str_sub(s, s.p[0] == '/' ? 1 : 2);
    while (s.n && s.p[s.n - 1] == '/')
        s.n--;
    return str_eqc(s, ".") ? STR("") : s;
}

static bool is_ignored(const struct local_context *c, struct str path)
{
    bool ignored = false;
    for (size_t i = 0; i < c->n_rules; i++)
        if (build_context_matches(c->rules[i].pattern, path))
            ignored = !c->rules[i].keeps;
    return ignored;
}

static int read_ignore(struct local_context *c, struct err *err)
{
    int r = fd_read_file(c->fd, ".dockerignore", &c->ignore);
    if (r == -ENOENT)
        return 0;
    if (r < 0)
        return err_errno(err, r, "read .dockerignore");
    struct str rest = buf_str(&c->ignore), line;
    while (str_split(&rest, '\n', &line)) {
        if (line.n && line.p[line.n - 1] == '\r')
            line.n--;
        line = str_trim(line);
        if (!line.n || line.p[0] == '#')
            continue;
        bool keeps = line.p[0] == '!';
        struct str pattern = build_context_path(str_trim(keeps ? str_sub(line, 1) : line));
        if (c->n_rules == RULES_MAX)
            return err_set(err, ERR_INVALID_ARGUMENT, ".dockerignore: more than %d rules", RULES_MAX);
        if (pattern.n)
            c->rules[c->n_rules++] = (struct ignore_rule){pattern, keeps};
    }
    return 0;
}

/* ---- the tree ---- */

static int build_context_add(struct local_context *c, const char *path, struct err *err)
{
    if (c->n == CONTEXT_FILES_MAX)
        return err_set(err, ERR_RESOURCE_EXHAUSTED,
                       "more than %d files in the context: leave some out by .dockerignore", CONTEXT_FILES_MAX);
    if (c->n == c->cap) {
        c->cap = c->cap ? c->cap * 2 : 256;
        c->paths = mem_realloc(c->paths, c->cap * sizeof(*c->paths));
    }
    c->paths[c->n++] = mem_strdup(path);
    return 0;
}

static int build_context_walk(struct local_context *c, int dirfd, const char *prefix, unsigned depth, struct err *err);

static int walk_entry(struct local_context *c, int dirfd, const char *prefix, const char *name, unsigned depth,
                      struct err *err)
{
    AUTO_FREE char *path = mem_printf("%s%s%s", prefix, *prefix ? "/" : "", name);
    struct stat st;
    if (fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : err_errno(err, errno, "look at %s", path);
    bool ignored = is_ignored(c, str_of(path));
    bool is_kind = S_ISREG(st.st_mode) || S_ISDIR(st.st_mode) || S_ISLNK(st.st_mode);
    if (is_kind && !ignored && build_context_add(c, path, err) < 0)
        return -1;
    if (!S_ISDIR(st.st_mode))
        return 0;
    int fd = openat(dirfd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "open %s", path);
    return build_context_walk(c, fd, path, depth + 1, err);
}

static int build_context_walk(struct local_context *c, int fd, const char *prefix, unsigned depth, struct err *err)
{
    AUTO(dir_close) DIR *dir = dir_take(fd);
    int r = 0;
    if (!dir)
        return err_errno(err, errno, "open %s", prefix);
    if (depth > DEPTH_MAX)
        r = err_set(err, ERR_INVALID_ARGUMENT, "%s: more than %d directories deep", prefix, DEPTH_MAX);
    for (const struct dirent *e; r == 0 && (e = dir_next(dir));)
        r = walk_entry(c, fd, prefix, e->d_name, depth, err);
    return r;
}

static int build_context_by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

int build_context_open(const char *dir, struct local_context **ret_context, struct err *err)
{
    AUTO(build_context_close) struct local_context *c = mem_new(struct local_context);
    c->ignore = BUF_INIT(IGNORE_MAX);
    c->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (c->fd < 0)
        return err_errno(err, errno, "open %s", dir);
    int fd = openat(c->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "open %s", dir);
    if (read_ignore(c, err) < 0) {
        (void)fd_close(fd);
        return -1;
    }
    if (build_context_walk(c, fd, "", 0, err) < 0)
        return -1;
    if (c->n)
        qsort(c->paths, c->n, sizeof(*c->paths), build_context_by_name);
    *ret_context = TAKE_PTR(c);
    return 0;
}

void build_context_close(struct local_context *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n; i++)
        mem_free(c->paths[i]);
    mem_free(c->paths);
    buf_fini(&c->ignore);
    (void)fd_close(c->fd);
    mem_free(c);
}

/* ---- what a source names ---- */

typedef int (*file_fn)(void *ctx, const char *path, const struct stat *st, const char *target, int fd, struct err *err);

int build_context_beneath(int dirfd, const char *path, int flags, bool over_links)
{
    const struct open_how how = {
        .flags = (unsigned)flags | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (over_links ? 0 : RESOLVE_NO_SYMLINKS),
    };
    int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

static int visit(const struct local_context *c, const char *path, file_fn fn, void *ctx, struct err *err)
{
    char target[4096] = "";
    struct stat st;
    AUTO_CLOSE int fd = -1;
    if (fstatat(c->fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_errno(err, errno, "look at %s", path);
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(c->fd, path, target, sizeof(target) - 1);
        if (n < 0)
            return err_errno(err, errno, "read the link %s", path);
        target[n] = '\0';
    } else if (S_ISREG(st.st_mode)) {
        fd = build_context_beneath(c->fd, path, O_RDONLY, false); /* who writes there may swap a directory for a link */
        if (fd < 0 || fstat(fd, &st) < 0)
            return err_errno(err, fd < 0 ? fd : errno, "open %s", path);
    }
    return fn(ctx, path, &st, target, fd, err);
}

static void add_seen(struct context_reading *r, ssize_t n)
{
    r->bytes += (uint64_t)n;
    if (r->seen)
        r->seen(r->seen_ctx, r->bytes);
}

void build_context_watch(struct local_context *c, build_context_seen_fn seen, void *ctx)
{
    c->reading.seen = seen;
    c->reading.seen_ctx = ctx;
}

uint64_t build_context_bytes(const struct local_context *c)
{
    return c->reading.bytes;
}

static int build_context_each(struct local_context *c, const char *source, file_fn fn, void *into, struct err *err)
{
    struct str pattern = build_context_path(str_of(source));
    size_t n = 0;
    c->reading.bytes = 0;
    c->reading.into = into;
    for (size_t i = 0; i < c->n; i++) {
        if (pattern.n && !build_context_matches(pattern, str_of(c->paths[i])))
            continue;
        n++;
        if (visit(c, c->paths[i], fn, &c->reading, err) < 0)
            return -1;
    }
    if (n == 0)
        return err_set(err, ERR_NOT_FOUND, "there is no %s in the context, or .dockerignore leaves it out", source);
    return 0;
}

static int digest_fd(struct context_reading *r, int fd, const char *path, struct err *err)
{
    char chunk[CONTEXT_CHUNK];
    for (;;) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        if (n < 0)
            return err_errno(err, errno, "read %s", path);
        if (n == 0)
            return 0;
        (void)EVP_DigestUpdate(r->into, chunk, (size_t)n);
        add_seen(r, n);
    }
}

static int digest_file(void *ctx, const char *path, const struct stat *st, const char *target, int fd, struct err *err)
{
    struct context_reading *r = ctx;
    char head[64];
    (void)snprintf(head, sizeof(head), "%o %lld", (unsigned)st->st_mode,
                   S_ISREG(st->st_mode) ? (long long)st->st_size : 0LL);
    (void)EVP_DigestUpdate(r->into, path, strlen(path) + 1);
    (void)EVP_DigestUpdate(r->into, head, strlen(head) + 1);
    (void)EVP_DigestUpdate(r->into, target, strlen(target) + 1);
    return fd >= 0 ? digest_fd(r, fd, path, err) : 0;
}

static void end_digest(EVP_MD_CTX *md, char ret_hash[static CONTEXT_HASH_LEN + 1])
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned int n = 0;
    (void)EVP_DigestFinal_ex(md, digest, &n);
    EVP_MD_CTX_free(md);
    str_hex(digest, CONTEXT_HASH_LEN / 2, ret_hash);
}

static EVP_MD_CTX *begin_digest(void)
{
    EVP_MD_CTX *md = EVP_MD_CTX_new();
    int ok = md && EVP_DigestInit_ex(md, EVP_sha256(), NULL);
    assert(ok);
    (void)ok;
    return md;
}

int build_context_hash(struct local_context *c, const char *source, char ret_hash[static CONTEXT_HASH_LEN + 1],
                       struct err *err)
{
    EVP_MD_CTX *md = begin_digest();
    (void)EVP_DigestUpdate(md, source, strlen(source) + 1);
    int r = build_context_each(c, source, digest_file, md, err);
    end_digest(md, ret_hash);
    return r;
}

int build_context_hash_file(const char *path, build_context_seen_fn seen, void *ctx,
                            char ret_hash[static CONTEXT_HASH_LEN + 1], struct err *err)
{
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(err, errno, "open %s", path);
    EVP_MD_CTX *md = begin_digest();
    struct context_reading reading = {seen, ctx, 0, md};
    int r = digest_fd(&reading, fd, path, err);
    end_digest(md, ret_hash);
    return r;
}

static int build_context_broken(struct archive *a, const char *path, struct err *err)
{
    return err_set(err, ERR_INTERNAL, "pack %s: %s", path,
                   la()->archive_error_string(a) ? la()->archive_error_string(a) : "?");
}

static int pack_content(struct context_reading *r, int fd, const char *path, int64_t size, struct err *err)
{
    char chunk[CONTEXT_CHUNK];
    while (size > 0) {
        ssize_t n = read(fd, chunk, MIN(sizeof(chunk), (size_t)size));
        if (n <= 0)
            return n < 0 ? err_errno(err, errno, "read %s", path)
                         : err_set(err, ERR_ABORTED, "%s changes while it is read", path);
        if (la()->archive_write_data(r->into, chunk, (size_t)n) != n)
            return build_context_broken(r->into, path, err);
        size -= n;
        add_seen(r, n);
    }
    return 0;
}

static int pack_file(void *ctx, const char *path, const struct stat *st, const char *target, int fd, struct err *err)
{
    struct context_reading *reading = ctx;
    struct archive *a = reading->into;
    struct archive_entry *e = la()->archive_entry_new();
    la()->archive_entry_set_pathname(e, path);
    la()->archive_entry_set_filetype(e, st->st_mode & S_IFMT);
    la()->archive_entry_set_perm(e, st->st_mode & 07777);
    la()->archive_entry_set_mtime(e, st->st_mtim.tv_sec, 0);
    if (S_ISLNK(st->st_mode))
        la()->archive_entry_set_symlink(e, target);
    if (S_ISREG(st->st_mode))
        la()->archive_entry_set_size(e, st->st_size);
    int r = la()->archive_write_header(a, e) == ARCHIVE_OK ? 0 : build_context_broken(a, path, err);
    la()->archive_entry_free(e);
    return r == 0 && S_ISREG(st->st_mode) ? pack_content(reading, fd, path, st->st_size, err) : r;
}

int build_context_pack(struct local_context *c, const char *source, int fd, struct err *err)
{
    struct archive *a = la()->archive_write_new();
    if (!a || la()->archive_write_set_format_pax_restricted(a) != ARCHIVE_OK ||
        la()->archive_write_add_filter_gzip(a) != ARCHIVE_OK ||
        la()->archive_write_set_options(a, "gzip:compression-level=1") != ARCHIVE_OK ||
        la()->archive_write_open_fd(a, fd) != ARCHIVE_OK) {
        int r = build_context_broken(a, source, err);
        (void)la()->archive_write_free(a);
        return r;
    }
    int r = build_context_each(c, source, pack_file, a, err);
    if (r == 0 && la()->archive_write_close(a) != ARCHIVE_OK)
        r = build_context_broken(a, source, err);
    (void)la()->archive_write_free(a);
    return r;
}
