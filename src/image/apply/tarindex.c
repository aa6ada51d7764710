/* SPDX-License-Identifier: Apache-2.0 */
#include "image/apply/tarindex.h"
#include "base/buf.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/path.h"

#include <unistd.h>

enum { BLOCK = 512, TEXT_MAX = 64 * 1024, LINKS_MAX = 8 };

/* The header of one file, as POSIX lays it out. */
struct header {
    char name[100], mode[8], uid[8], gid[8], size[12], mtime[12], checksum[8], type, link[100], magic[6], version[2],
        uname[32], gname[32], major[8], minor[8], prefix[155], pad[12];
};
_Static_assert(sizeof(struct header) == BLOCK, "a tar header fills a block");

struct file {
    uint64_t offset, size;
    char *link; /* the name of the file that it is; NULL: itself */
};

struct tarindex {
    struct map files; /* name -> struct file */
    struct tarindex_limits limits;
    size_t names_bytes;
};

/* What extension headers said about the next file. */
struct extension {
    char *name, *link; /* owned */
    uint64_t size;
    bool has_size;
};

static void drop_extension(struct extension *x)
{
    MEM_FREE(x->name, x->link);
    *x = (struct extension){.name = NULL};
}

static int tarindex_bad(struct err *err, const char *why)
{
    return err_set(err, ERR_INVALID_ARGUMENT, "the archive is not a valid tar: %s", why);
}

static int read_at(int fd, void *p, size_t n, uint64_t offset)
{
    char *to = p;
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : -ENODATA;
        to += got;
        offset += (uint64_t)got;
        n -= (size_t)got;
    }
    return 0;
}

/* ---- fields ---- */

static bool take_number(const char *field, size_t n, uint64_t *ret_value)
{
    uint64_t v = 0;
    size_t i = 0;
    if ((unsigned char)field[0] == 0x80) { /* base 256, of GNU tar */
        for (i = 1; i < n; i++) {
            if (v >> 55)
                return false;
            v = v << 8 | (unsigned char)field[i];
        }
        *ret_value = v;
        return true;
    }
    while (i < n && field[i] == ' ')
        i++;
    for (; i < n && field[i] >= '0' && field[i] <= '7'; i++)
        v = v << 3 | (uint64_t)(field[i] - '0');
    *ret_value = v;
    return i == n || field[i] == ' ' || field[i] == '\0';
}

static bool checksum_is_right(const struct header *h)
{
    const unsigned char *p = (const unsigned char *)h;
    uint64_t said, sum = 0;
    for (size_t i = 0; i < BLOCK; i++)
        sum += i >= offsetof(struct header, checksum) && i < offsetof(struct header, type) ? ' ' : p[i];
    return take_number(h->checksum, sizeof(h->checksum), &said) && said == sum;
}

static char *tarindex_take_name(const struct header *h)
{
    size_t n = strnlen(h->name, sizeof(h->name));
    size_t m = memcmp(h->magic, "ustar", 6) == 0 ? strnlen(h->prefix, sizeof(h->prefix)) : 0;
    return m ? mem_printf("%.*s/%.*s", (int)m, h->prefix, (int)n, h->name) : mem_strndup(h->name, n);
}

/* ---- PAX ---- */

/* Records "LENGTH KEY=VALUE\n". */
static bool take_pax(struct str text, struct extension *x)
{
    while (text.n > 0) {
        ssize_t blank = str_find_char(text, ' ');
        uint64_t n;
        if (blank <= 0 || str_to_u64(str_n(text.p, (size_t)blank), &n) < 0 || n > text.n || n < (uint64_t)blank + 2 ||
            text.p[n - 1] != '\n')
            return false;
        struct str record = str_n(text.p + blank + 1, (size_t)n - (size_t)blank - 2);
        text = str_n(text.p + n, text.n - (size_t)n);
        ssize_t equals = str_find_char(record, '=');
        if (equals < 0)
            return false;
        struct str key = str_n(record.p, (size_t)equals),
                   value = str_n(record.p + equals + 1, record.n - (size_t)equals - 1);
        if (str_has_nul(value))
            return false;
        if (str_eq(key, STR("path"))) {
            mem_free(x->name);
            x->name = mem_strndup(value.p, value.n);
        } else if (str_eq(key, STR("linkpath"))) {
            mem_free(x->link);
            x->link = mem_strndup(value.p, value.n);
        } else if (str_eq(key, STR("size"))) {
            if (str_to_u64(value, &x->size) < 0)
                return false;
            x->has_size = true;
        }
    }
    return true;
}

/* ---- the index ---- */

static int take_extension(int fd, char type, uint64_t offset, uint64_t size, struct extension *x, struct err *err)
{
    if (size > TEXT_MAX)
        return tarindex_bad(err, "an extended header is too large");
    AUTO_FREE char *text = mem_zalloc((size_t)size + 1);
    if (read_at(fd, text, (size_t)size, offset) < 0)
        return tarindex_bad(err, "it ends early");
    if (type == 'x')
        return take_pax(str_n(text, (size_t)size), x) ? 0 : tarindex_bad(err, "an extended header is broken");
    char **to = type == 'L' ? &x->name : &x->link;
    mem_free(*to);
    *to = mem_strdup(text);
    return 0;
}

/* The names that archives use have neither "..", nor anything but "./" in front. */
static const char *tarindex_plain(const char *name)
{
    while (strncmp(name, "./", 2) == 0)
        name += 2;
    return name;
}

static int add_file(struct tarindex *t, const char *name, struct file file, struct err *err)
{
    size_t n = strlen(name) + (file.link ? strlen(file.link) : 0);
    if (map_count(&t->files) >= t->limits.files || t->names_bytes + n > t->limits.names_bytes)
        return err_set(err, ERR_OUT_OF_RANGE,
                       "the archive holds more than %zu files, or names too long: is it an archive of images?",
                       t->limits.files);
    t->names_bytes += n;
    struct file *own = mem_new(struct file), *old;
    *own = file;
    own->link = mem_strdup(file.link);
    old = map_put(&t->files, str_of(name), own);
    if (old)
        mem_free(old->link);
    mem_free(old);
    return 0;
}

static int take_file(struct tarindex *t, const struct header *h, const struct extension *x, uint64_t offset,
                     uint64_t size, struct err *err)
{
    AUTO_FREE char *name = x->name ? mem_strdup(x->name) : tarindex_take_name(h);
    AUTO_FREE char *link = NULL;
    if (h->type == '1' || h->type == '2') {
        AUTO_FREE char *target =
            x->link ? mem_strdup(x->link) : mem_strndup(h->link, strnlen(h->link, sizeof(h->link)));
        char joined[PATH_TEXT_MAX];
        if (h->type == '1')
            link = mem_strdup(tarindex_plain(target));
        else if (path_join(path_dir(str_of(tarindex_plain(name))), str_of(target), joined) ==
                 0) /* symbolic: from where it lies */
            link = mem_strdup(joined);
        if (!link)
            return 0;
    } else if (h->type != '0' && h->type != '\0' && h->type != '7') {
        return 0;
    }
    return name[0] ? add_file(t, tarindex_plain(name), (struct file){.offset = offset, .size = size, .link = link}, err)
                   : 0;
}

static int tarindex_read_all(struct tarindex *t, int fd, uint64_t end, struct extension *x, struct err *err)
{
    static const char zeros[BLOCK];
    struct header h;
    for (uint64_t at = 0;;) {
        int r = read_at(fd, &h, sizeof(h), at);
        if (r == -ENODATA && at > 0) /* some writers leave out the blocks that mark the end */
            return 0;
        if (r < 0)
            return r == -ENODATA ? tarindex_bad(err, "it is empty") : err_errno(err, r, "read the archive");
        if (memcmp(&h, zeros, BLOCK) == 0)
            return 0;
        uint64_t size;
        if (!checksum_is_right(&h))
            return tarindex_bad(err, "a header's checksum is wrong");
        bool is_extension = h.type == 'x' || h.type == 'L' || h.type == 'K' || h.type == 'g';
        if (!take_number(h.size, sizeof(h.size), &size))
            return tarindex_bad(err, "a size is not a number");
        if (x->has_size && !is_extension)
            size = x->size;
        at += BLOCK;
        if (h.type == '1' || h.type == '2' || h.type == '5')
            size = 0;
        if (size > end || at > end - size)
            return tarindex_bad(err, "a file ends behind its end");
        if (h.type == 'x' || h.type == 'L' || h.type == 'K') {
            if (take_extension(fd, h.type, at, size, x, err) < 0)
                return -1;
        } else if (h.type != 'g') {
            if (take_file(t, &h, x, at, size, err) < 0)
                return -1;
            drop_extension(x);
        }
        at += (size + BLOCK - 1) / BLOCK * BLOCK;
    }
}

int tarindex_open(int fd, const struct tarindex_limits *limits, struct tarindex **ret_index, struct err *err)
{
    struct extension x = {.name = NULL};
    struct tarindex *t = mem_new(struct tarindex);
    off_t end = lseek(fd, 0, SEEK_END);
    t->limits = *limits;
    int r = end < 0 ? err_errno(err, errno, "the archive's size") : tarindex_read_all(t, fd, (uint64_t)end, &x, err);
    drop_extension(&x);
    if (r < 0)
        tarindex_free(t);
    else
        *ret_index = t;
    return r;
}

void tarindex_free(struct tarindex *t)
{
    if (!t)
        return;
    MAP_FOREACH (struct file, f, &t->files) {
        MEM_FREE(f->link, f);
    }
    map_fini(&t->files);
    mem_free(t);
}

bool tarindex_find(const struct tarindex *t, const char *name, uint64_t *ret_offset, uint64_t *ret_size)
{
    const struct file *f = map_get(&t->files, str_of(name));
    for (int hops = 0; f && f->link && hops < LINKS_MAX; hops++)
        f = map_get(&t->files, str_of(f->link));
    if (!f || f->link)
        return false;
    *ret_offset = f->offset;
    *ret_size = f->size;
    return true;
}
