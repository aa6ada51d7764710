/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/test_rig.h"
#include "base/fd.h"
#include "base/mem.h"
#include "coved/diff/diff.h"
#include "kernel/tree/tree.h"
#include "wire/diff.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUT_MAX = 1 << 20, LAYERS = 10, LINES_MAX = 1024 };

static char top[] = "/var/tmp/cove-diff-test.XXXXXX";

int diff_rig_set_up(void **state UNUSED)
{
    memcpy(strrchr(top, '.') + 1, "XXXXXX", 6);
    if (!mkdtemp(top) || chdir(top) < 0)
        return -1;
    (void)umask(022);
    for (int i = 0; i < LAYERS; i++)
        if (mkdir((char[]){(char)('0' + i), 0}, 0755) < 0)
            return -1;
    return 0;
}

int diff_rig_tear_down(void **state UNUSED)
{
    return chdir("/") < 0 || tree_remove(AT_FDCWD, top) < 0 ? -1 : 0;
}

const char *diff_rig_top(void)
{
    return top;
}

void diff_rig_file(const char *path, const char *text)
{
    assert_int_equal(fd_write_file(AT_FDCWD, path, str_of(text), 0644), 0);
}

void diff_rig_dir(const char *path)
{
    assert_int_equal(mkdir(path, 0755), 0);
}

void diff_rig_whiteout(const char *path)
{
    assert_int_equal(mknod(path, S_IFCHR, 0), 0);
}

void diff_rig_mark(const char *path, const char *name, const char *value)
{
    char full[64];
    (void)snprintf(full, sizeof(full), "trusted.overlay.%s", name);
    assert_int_equal(setxattr(path, full, value, strlen(value), 0), 0);
}

void diff_rig_rename(char layer, const char *from, const char *to)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%c%s", layer, to);
    diff_rig_dir(path);
    diff_rig_mark(path, "redirect", from);
    (void)snprintf(path, sizeof(path), "%c%s", layer, from);
    diff_rig_whiteout(path);
}

struct result {
    int r;
    uint64_t lookups;
};

/* In a child, since the pipe must be read meanwhile. */
int diff_rig_run(const struct diff_rig_run *how, const char *a, const char *b, size_t n_common, struct buf *out,
                 uint64_t *ret_lookups)
{
    int p[2], status;
    struct result *result = mmap(NULL, sizeof(*result), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(result != MAP_FAILED);
    assert_int_equal(pipe(p), 0);
    if (how->reader_leaves)
        p[0] = fd_close(p[0]);
    pid_t pid = fork();
    if (pid == 0) {
        struct diff d = {.n_a = strlen(a),
                         .n_b = strlen(b),
                         .n_common = n_common,
                         .out = p[1],
                         .a_box = how->a_box,
                         .box = how->box};
        d.lookups_most = how->lookups_most ? how->lookups_most : DIFF_LOOKUPS_MAX;
        (void)signal(SIGPIPE, SIG_IGN); /* as coved has it */
        (void)fd_close(p[0]);
        for (size_t i = 0; i < d.n_a; i++)
            d.a[i] = open((char[]){a[i], 0}, O_PATH | O_DIRECTORY);
        for (size_t i = 0; i < d.n_b; i++)
            d.b[i] = open((char[]){b[i], 0}, O_PATH | O_DIRECTORY);
        result->r = diff_write(&d, &result->lookups);
        _exit(0);
    }
    assert_true(pid > 0);
    (void)close(p[1]);
    assert_int_equal(how->reader_leaves ? 0 : fd_read_all(p[0], out), 0);
    (void)fd_close(p[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    const struct result got = *result;
    (void)munmap(result, sizeof(*result));
    *ret_lookups = got.lookups;
    return got.r;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

uint64_t diff_rig_expect_of(const struct diff_rig_run *how, const char *a, const char *b, size_t n_common,
                            const char *wanted)
{
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    AUTO_BUF struct buf text = BUF_INIT(OUT_MAX);
    static char *lines[LINES_MAX];
    size_t n = 0;
    uint64_t lookups = 0;
    assert_int_equal(diff_rig_run(how, a, b, n_common, &out, &lookups), 0);
    for (size_t at = 0; at < buf_len(&out);) {
        struct diff_record r;
        assert_true(at + sizeof(r) <= buf_len(&out) && n < LINES_MAX);
        memcpy(&r, (const char *)buf_data(&out) + at, sizeof(r));
        at += sizeof(r);
        assert_true(at + r.path_len <= buf_len(&out));
        lines[n++] = mem_printf("%.*s %c%c", (int)r.path_len, (const char *)buf_data(&out) + at, r.kind, r.type);
        at += r.path_len;
    }
    qsort(lines, n, sizeof(lines[0]), by_text);
    for (size_t i = 0; i < n; i++) {
        (void)buf_printf(&text, "%s%s", i ? ", " : "", lines[i]);
        mem_free(lines[i]);
    }
    (void)buf_append_char(&text, 0);
    assert_string_equal(buf_data(&text), wanted);
    return lookups;
}

uint64_t diff_rig_expect(const char *a, const char *b, size_t n_common, const char *wanted)
{
    return diff_rig_expect_of(&(struct diff_rig_run){0}, a, b, n_common, wanted);
}
