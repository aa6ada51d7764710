/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Layers applied onto a directory, 0xff 0x00 0xff between two of them: nothing beside it is touched, nothing in it is
 * what layers can't make, and limits hold.
 */
#include "image/apply/apply.h"

#include "base/buf.h"
#include "base/fd.h"
#include "kernel/tree/tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BYTES = 1 << 20, ENTRIES = 200 };

static int top = -1;

static char name[] = "/tmp/image-apply-fuzz-XXXXXX";

static void remove_all(void)
{
    (void)unlinkat(top, "victim", 0);
    (void)rmdir(name);
}

static void warn(void *ctx, const char *text)
{
    (void)ctx;
    if (!text[0])
        abort();
}

static ssize_t read_once(void *ctx, const void **ret_p)
{
    struct str *s = ctx;
    size_t n = MIN(s->n, 1000);
    *ret_p = s->p;
    *s = str_n(s->p + n, s->n - n);
    return (ssize_t)n;
}

/* Beside the directory there is one file, and it is as it was. */
static void check_beside(void)
{
    AUTO_BUF struct buf text = BUF_INIT(16);
    int n = 0;
    DIR *dir = fdopendir(openat(top, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    for (struct dirent *e; dir && (e = readdir(dir));)
        n++;
    if (!dir || n != 3 || fd_read_file(top, "victim", &text) < 0 || !str_eq(buf_str(&text), STR("safe")))
        abort();
    (void)closedir(dir);
}

static void check_inside(int at, const char *what, int depth)
{
    struct stat st;
    if (fstatat(at, what, &st, AT_SYMLINK_NOFOLLOW) < 0 || S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) ||
        S_ISSOCK(st.st_mode))
        abort();
    if (!S_ISDIR(st.st_mode) || depth > 100)
        return;
    DIR *dir = fdopendir(openat(at, what, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    for (struct dirent *e; dir && (e = readdir(dir));)
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            check_inside(dirfd(dir), e->d_name, depth + 1);
    if (dir)
        (void)closedir(dir);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str rest = str_n(data, size);
    struct err err;
    if (top < 0) {
        if (!mkdtemp(name) || (top = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
            fd_write_file(top, "victim", STR("safe"), 0600) < 0)
            abort();
        (void)atexit(remove_all);
    }
    if (mkdirat(top, "root", 0755) < 0)
        abort();
    int root = openat(top, "root", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    const struct apply_config config = {.root_fd = root, .max_bytes = BYTES, .max_entries = ENTRIES, .warn = warn};
    AUTO(apply_free) struct apply *a = apply_new(&config);
    while (rest.p) {
        const char *mark = rest.n ? memmem(rest.p, rest.n, "\xff\0\xff", 3) : NULL;
        struct str layer = mark ? str_n(rest.p, (size_t)(mark - rest.p)) : rest;
        rest = mark ? str_n(mark + 3, rest.n - layer.n - 3) : STR_NULL;
        if (apply_layer(a, read_once, &layer, &err) < 0)
            break;
    }
    if (apply_bytes(a) > BYTES || apply_entries(a) > ENTRIES)
        abort();
    (void)fd_close(root);
    check_inside(top, "root", 0);
    if (tree_remove(top, "root") < 0)
        abort();
    check_beside();
    return 0;
}
