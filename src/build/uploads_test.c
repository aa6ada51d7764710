/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "build/spec.h"
#include "build/uploads.h"
#include "store/test_dir.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define OTHER "f123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void files_come_and_stay(void **state)
{
    const struct test_dir *dir = *state;
    struct uploads *u;
    struct upload *up;
    struct err err;
    uint64_t size;
    int fd;
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    assert_false(uploads_has(u, HASH));
    assert_int_equal(uploads_open(u, HASH, &fd, &size, &err), -1);
    assert_int_equal(err.code, ERR_NOT_FOUND);
    assert_int_equal(upload_begin(u, 0, HASH, 5, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("hello"), &err), 0);
    assert_false(uploads_has(u, HASH)); /* not before all of it is there */
    assert_int_equal(upload_end(up, &err), 0);
    assert_true(uploads_has(u, HASH));
    assert_int_equal(upload_begin(u, 0, HASH, -1, &up, &err), 0); /* again, the same */
    assert_int_equal(upload_write(up, STR("hello"), &err), 0);
    assert_int_equal(upload_end(up, &err), 0);
    assert_int_equal(uploads_open(u, HASH, &fd, &size, &err), 0);
    assert_int_equal(size, 5);
    (void)fd_close(fd);
    assert_int_equal(upload_begin(u, 0, OTHER, -1, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("half"), &err), 0);
    upload_cancel(up);
    assert_false(uploads_has(u, OTHER));
    assert_int_equal(upload_begin(u, 0, OTHER, (int64_t)UPLOAD_BYTES_MAX + 1, &up, &err), -1);
    assert_int_equal(err.code, ERR_OUT_OF_RANGE);
    uploads_free(u);
    upload_cancel(NULL);

    /* What a crash left half is gone with the next start, the whole ones stay. */
    AUTO_FREE char *half = mem_printf("%s/uploads/part-7", dir->path);
    assert_int_equal(fd_write_file(AT_FDCWD, half, STR("x"), 0600), 0);
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    assert_int_equal(access(half, F_OK), -1);
    assert_true(uploads_has(u, HASH));
    uploads_free(u);
}

/* One upload by a link, whole. 0, or the code of what went wrong. */
static enum err_code send_by_link(struct uploads *u, const char *token, const char *content, int64_t announced)
{
    struct upload *up;
    struct err err;
    if (upload_begin_by_link(u, STR(HASH), str_of(token), announced, &up, &err) < 0)
        return err.code;
    size_t half = strlen(content) / 2;
    if (upload_write(up, str_n(content, half), &err) < 0 || upload_write(up, str_of(content + half), &err) < 0) {
        upload_cancel(up);
        return err.code;
    }
    return upload_end(up, &err) < 0 ? err.code : ERR_OK;
}

static bool is_there(struct uploads *u, const char *content)
{
    char there[64] = "";
    uint64_t size;
    struct err err;
    AUTO_CLOSE int fd = -1;
    assert_int_equal(uploads_open(u, HASH, &fd, &size, &err), 0);
    ssize_t n = pread(fd, there, sizeof(there), 0);
    return n >= 0 && (size_t)n == strlen(content) && memcmp(there, content, (size_t)n) == 0;
}

static void links(void **state)
{
    const struct test_dir *dir = *state;
    char token[UPLOAD_TOKEN_LEN + 1], last[UPLOAD_TOKEN_LEN + 1], others[UPLOAD_TOKEN_LEN + 1];
    struct uploads *u;
    struct upload *up;
    struct err err;
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    uploads_grant(u, 0, HASH, token);
    assert_int_equal(upload_begin_by_link(u, STR(OTHER), str_of(token), -1, &up, &err), -1);
    assert_int_equal(err.code, ERR_PERMISSION_DENIED);
    assert_int_equal(send_by_link(u, "", "x", -1), ERR_PERMISSION_DENIED);
    token[3] = token[3] == 'a' ? 'b' : 'a';
    assert_int_equal(send_by_link(u, token, "x", -1), ERR_PERMISSION_DENIED);
    uploads_grant(u, 0, HASH, token);
    uploads_grant(u, 7, HASH, others);
    for (int i = 0; i < 5000; i++) /* there are only so many */
        uploads_grant(u, 0, OTHER, last);
    assert_int_equal(send_by_link(u, token, "x", -1), ERR_PERMISSION_DENIED);
    assert_int_equal(upload_begin_by_link(u, STR(HASH), str_of(others), -1, &up, &err), 0); /* another tenant's stays */
    upload_cancel(up);
    uploads_free(u);
}

static void a_link_is_good_for_one_upload(void **state)
{
    const struct test_dir *dir = *state;
    char token[UPLOAD_TOKEN_LEN + 1], again[UPLOAD_TOKEN_LEN + 1];
    struct uploads *u;
    struct upload *up;
    struct err err;
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    uploads_grant(u, 0, HASH, token);
    assert_int_equal(upload_begin_by_link(u, STR(HASH), str_of(token), -1, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("lost on the w"), &err), 0);
    upload_cancel(up); /* one that failed may be tried again */
    assert_int_equal(send_by_link(u, token, "content", 7), ERR_OK);
    /* The same once more, because the answer got lost; nothing else. */
    assert_int_equal(send_by_link(u, token, "content", 7), ERR_OK);
    assert_int_equal(send_by_link(u, token, "content", -1), ERR_OK);
    assert_int_equal(send_by_link(u, token, "another", 7), ERR_PERMISSION_DENIED);
    assert_int_equal(send_by_link(u, token, "conten", -1), ERR_PERMISSION_DENIED);
    assert_int_equal(send_by_link(u, token, "content and more", -1), ERR_PERMISSION_DENIED);
    assert_int_equal(send_by_link(u, token, "content and more", 16), ERR_PERMISSION_DENIED);
    assert_int_equal(send_by_link(u, token, "", 0), ERR_PERMISSION_DENIED);
    assert_true(is_there(u, "content"));
    assert_int_equal(uploads_bytes(u), 7);
    uploads_grant(u, 0, HASH, again); /* who has the key may replace it */
    assert_int_equal(send_by_link(u, again, "other", 5), ERR_OK);
    assert_true(is_there(u, "other"));
    assert_int_equal(send_by_link(u, token, "content", 7), ERR_PERMISSION_DENIED);
    assert_int_equal(uploads_bytes(u), 5);
    uploads_free(u);
}

static enum err_code send_by_key(struct uploads *u, struct str content, int64_t announced)
{
    struct upload *up;
    struct err err;
    if (upload_begin(u, 0, HASH, announced, &up, &err) < 0)
        return err.code;
    if (upload_write(up, content, &err) == 0)
        return upload_end(up, &err) < 0 ? err.code : ERR_OK;
    upload_cancel(up);
    return err.code;
}

static void by_key_the_first_content_stays(void **state)
{
    const struct test_dir *dir = *state;
    struct uploads *u;
    struct upload *slow;
    struct err err;
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    assert_int_equal(upload_begin(u, 0, HASH, -1, &slow, &err), 0);
    assert_int_equal(upload_write(slow, STR("slow"), &err), 0);
    assert_int_equal(send_by_key(u, STR("content"), 7), ERR_OK);
    assert_int_equal(send_by_key(u, STR("content"), 7), ERR_OK);
    assert_int_equal(send_by_key(u, STR("content"), -1), ERR_OK);
    assert_int_equal(send_by_key(u, STR("another"), 7), ERR_ALREADY_EXISTS);
    assert_int_equal(send_by_key(u, STR("conten"), -1), ERR_ALREADY_EXISTS);
    assert_int_equal(send_by_key(u, STR("content and more"), -1), ERR_ALREADY_EXISTS);
    assert_int_equal(send_by_key(u, STR("content and more"), 16), ERR_ALREADY_EXISTS);
    assert_int_equal(upload_end(slow, &err), -1); /* begun first, and too late */
    assert_int_equal(err.code, ERR_ALREADY_EXISTS);
    assert_true(is_there(u, "content"));
    assert_int_equal(uploads_bytes(u), 7);
    uploads_free(u);
    AUTO_FREE char *uploads = mem_printf("%s/uploads", dir->path);
    AUTO_FREE char *file = mem_printf("%s/%s", uploads, HASH);
    assert_int_equal(unlink(file), 0);
    assert_int_equal(rmdir(uploads), 0); /* nothing half is left */
}

static void links_leave_slots_to_the_key(void **state)
{
    const struct test_dir *dir = *state;
    char token[UPLOAD_TOKEN_LEN + 1], first[UPLOAD_TOKEN_LEN + 1];
    struct upload *by_link[64], *by_key[64], *up;
    size_t n_links = 0, n_keys = 0;
    struct uploads *u;
    struct err err;
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    uploads_grant(u, 0, HASH, first);
    assert_int_equal(upload_begin_by_link(u, STR(HASH), str_of(first), -1, &by_link[n_links++], &err), 0);
    assert_int_equal(upload_begin_by_link(u, STR(HASH), str_of(first), -1, &up, &err), -1); /* one at a time */
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_false(upload_is_full(&err));
    for (;;) {
        uploads_grant(u, 0, HASH, token);
        if (upload_begin_by_link(u, STR(HASH), str_of(token), -1, &up, &err) < 0)
            break;
        by_link[n_links++] = up;
    }
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(n_links, 48);
    while (upload_begin(u, 0, OTHER, -1, &up, &err) == 0)
        by_key[n_keys++] = up;
    assert_int_equal(err.code, ERR_RESOURCE_EXHAUSTED);
    assert_int_equal(n_keys, 16);
    uploads_grant(u, 7, HASH, token); /* another tenant finds room, by both ways */
    assert_int_equal(upload_begin_by_link(u, STR(HASH), str_of(token), -1, &up, &err), 0);
    upload_cancel(up);
    assert_int_equal(upload_begin(u, 7, OTHER, -1, &up, &err), 0);
    upload_cancel(up);
    upload_cancel(by_link[0]); /* its link is free, its slot too */
    assert_int_equal(upload_begin_by_link(u, STR(HASH), str_of(first), -1, &by_link[0], &err), 0);
    for (size_t i = 0; i < n_links; i++)
        upload_cancel(by_link[i]);
    for (n_links = 0; upload_begin(u, 0, OTHER, -1, &up, &err) == 0; n_links++) /* the key may have all */
        by_link[n_links] = up;
    assert_int_equal(n_links + n_keys, 64);
    for (size_t i = 0; i < n_links; i++)
        upload_cancel(by_link[i]);
    for (size_t i = 0; i < n_keys; i++)
        upload_cancel(by_key[i]);
    uploads_free(u);
}

static void a_crawl_is_told_apart(void **state)
{
    (void)state;
    assert_false(upload_is_slow(0, 0));
    assert_false(upload_is_slow(30 * USEC_PER_SEC, 0));
    assert_true(upload_is_slow(31 * USEC_PER_SEC, 3)); /* a byte each 10 s */
    assert_false(upload_is_slow(31 * USEC_PER_SEC, 1024));
    assert_true(upload_is_slow(130 * USEC_PER_SEC, 100 * 1024 - 1));
    assert_false(upload_is_slow(130 * USEC_PER_SEC, 100 * 1024));
    assert_false(upload_is_slow(3600 * USEC_PER_SEC, 8 << 20));
}

static void totals_are_kept(void **state)
{
    const struct test_dir *dir = *state;
    struct uploads *u;
    struct upload *up;
    struct err err;
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    assert_int_equal(upload_begin(u, 0, HASH, -1, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("12345"), &err), 0);
    assert_int_equal(uploads_bytes(u), 5); /* while it is under way */
    assert_int_equal(upload_end(up, &err), 0);
    assert_int_equal(uploads_bytes(u), 5);
    assert_int_equal(upload_begin(u, 0, OTHER, -1, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("12"), &err), 0);
    assert_int_equal(uploads_bytes(u), 7);
    upload_cancel(up);
    assert_int_equal(uploads_bytes(u), 5);
    uploads_free(u);
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    assert_int_equal(uploads_bytes(u), 5);
    AUTO_FREE char *file = mem_printf("%s/uploads/%s", dir->path, HASH);
    assert_int_equal(unlink(file), 0); /* by somebody: it is to be sent again then */
    assert_false(uploads_has(u, HASH));
    assert_int_equal(uploads_bytes(u), 0);
    uploads_free(u);
}

/* In a child on a disk of 8 MiB, of which 4 are reserved. */
static int child_full_disk(const struct test_dir *dir)
{
    static char block[1 << 20];
    struct uploads *u;
    struct upload *up, *other;
    struct err err;
    if (!test_dir_shrink(dir, "8m"))
        return TEST_DIR_SKIP;
    if (uploads_new(dir->path, 4 << 20, &u, &err) < 0)
        return __LINE__;
    if (upload_begin(u, 0, HASH, 6 << 20, &up, &err) == 0 || !upload_is_full(&err))
        return __LINE__; /* what is announced is too much already */
    if (upload_begin(u, 0, HASH, -1, &up, &err) < 0 || upload_begin(u, 0, OTHER, -1, &other, &err) < 0)
        return __LINE__;
    int n = 0;
    while (n < 8 && upload_write(n % 2 ? up : other, str_n(block, sizeof(block)), &err) == 0)
        n++;
    if (n < 2 || n > 4 || !upload_is_full(&err))
        return __LINE__;
    upload_cancel(up);
    upload_cancel(other);
    if (uploads_bytes(u) != 0 || uploads_has(u, HASH))
        return __LINE__;
    if (upload_begin(u, 0, HASH, 2 << 20, &up, &err) < 0) /* what it had taken is free again */
        return __LINE__;
    if (upload_write(up, str_n(block, sizeof(block)), &err) < 0 || upload_end(up, &err) < 0)
        return __LINE__;
    uploads_free(u);

    /* What was sent long ago makes room, what was sent just now does not. */
    AUTO_FREE char *file = mem_printf("%s/uploads/%s", dir->path, HASH);
    if (uploads_new(dir->path, (6 << 20) + (1 << 19), &u, &err) < 0)
        return __LINE__;
    if (upload_begin(u, 0, OTHER, 1 << 20, &up, &err) == 0 || !upload_is_full(&err) || access(file, F_OK) < 0)
        return __LINE__;
    uploads_free(u);
    if (utimensat(AT_FDCWD, file, (struct timespec[]){{.tv_sec = 1000}, {.tv_sec = 1000}}, 0) < 0 ||
        uploads_new(dir->path, (6 << 20) + (1 << 19), &u, &err) < 0)
        return __LINE__;
    if (upload_begin(u, 0, OTHER, 1 << 20, &up, &err) < 0 || access(file, F_OK) == 0 || uploads_bytes(u) != 0)
        return __LINE__;
    upload_cancel(up);
    uploads_free(u);
    return 0;
}

static void the_disk_keeps_its_reserve(void **state)
{
    if (!test_in_child(child_full_disk, *state)) {
        print_message("no mount namespaces for us here\n");
        skip();
    }
}

static int teardown(void **state)
{
    const struct test_dir *dir = *state;
    AUTO_FREE char *file = mem_printf("%s/uploads/%s", dir->path, HASH);
    AUTO_FREE char *uploads = mem_printf("%s/uploads", dir->path);
    (void)unlink(file);
    return rmdir(uploads) < 0 && errno != ENOENT ? -1 : test_dir_teardown(state);
}

/* What a tenant's file is called can be named by nobody else: not as a hash, and not by another tenant. */
static void a_tenants_file_is_its_own(void **state)
{
    const struct test_dir *dir = *state;
    char none[UPLOAD_HASH_LEN + 1], one[UPLOAD_HASH_LEN + 1], two[UPLOAD_HASH_LEN + 1];
    struct uploads *u;
    struct upload *up;
    struct err err;
    upload_name(0, HASH, none);
    upload_name(1, HASH, one);
    upload_name(2, HASH, two);
    assert_string_equal(none, HASH);
    assert_string_not_equal(one, two);
    assert_false(build_is_hash(str_of(one)));
    assert_int_equal(strlen(one), UPLOAD_HASH_LEN);
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    assert_int_equal(upload_begin(u, 0, one, -1, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("x"), &err), 0);
    assert_int_equal(upload_end(up, &err), 0);
    uploads_free(u);
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0); /* it outlives a worker */
    assert_true(uploads_has(u, one) && !uploads_has(u, two) && !uploads_has(u, none));
    uploads_free(u);
    AUTO_FREE char *path = mem_printf("%s/uploads/%s", dir->path, one);
    assert_int_equal(unlink(path), 0);
}

static void test_make(const struct test_dir *dir, const char *name, off_t bytes, time_t at)
{
    AUTO_FREE char *path = mem_printf("%s/uploads/%s", dir->path, name);
    assert_int_equal(fd_write_file(AT_FDCWD, path, STR(""), 0600), 0);
    assert_int_equal(truncate(path, bytes), 0);
    assert_int_equal(utimensat(AT_FDCWD, path, (struct timespec[]){{.tv_sec = at}, {.tv_sec = at}}, 0), 0);
}

static void whoever_has_most_gives_way(void **state)
{
    const struct test_dir *dir = *state;
    char theirs[UPLOAD_HASH_LEN + 1];
    struct uploads *u;
    struct upload *up;
    struct err err;
    upload_name(7, OTHER, theirs);
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    uploads_free(u);
    test_make(dir, HASH, 1, 1000); /* sparse */
    test_make(dir, theirs, (off_t)UPLOADS_BYTES_MAX - 1, 2000);
    assert_int_equal(uploads_new(dir->path, UPLOADS_RESERVE_NONE, &u, &err), 0);
    assert_int_equal(upload_begin(u, 7, OTHER, -1, &up, &err), 0);
    assert_int_equal(upload_write(up, STR("x"), &err), 0);
    assert_true(uploads_has(u, HASH) && !uploads_has(u, theirs));
    upload_cancel(up);
    uploads_free(u);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, test_dir_setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {TEST(files_come_and_stay),
                                       TEST(a_tenants_file_is_its_own),
                                       TEST(links),
                                       TEST(a_link_is_good_for_one_upload),
                                       TEST(by_key_the_first_content_stays),
                                       TEST(links_leave_slots_to_the_key),
                                       TEST(a_crawl_is_told_apart),
                                       TEST(totals_are_kept),
                                       TEST(whoever_has_most_gives_way),
                                       TEST(the_disk_keeps_its_reserve)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
