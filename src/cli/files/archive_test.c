/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/files/archive.h"
#include "cli/files/libarchive.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct copy_place {
    char root[32]; /* of the test */
    char out[64];
    int archive;
};

static int set_up(void **state)
{
    struct copy_place *p = mem_new(struct copy_place);
    (void)snprintf(p->root, sizeof(p->root), "/tmp/cove-archive-XXXXXX");
    if (!mkdtemp(p->root))
        return -1;
    (void)snprintf(p->out, sizeof(p->out), "%s/out", p->root);
    p->archive = open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    *state = p;
    return mkdir(p->out, 0755) < 0 || p->archive < 0 ? -1 : 0;
}

static int tear_down(void **state)
{
    struct copy_place *p = *state;
    pid_t pid = fork();
    if (pid == 0) {
        (void)execlp("rm", "rm", "-rf", p->root, (char *)NULL);
        _exit(127);
    }
    int status = -1;
    (void)waitpid(pid, &status, 0);
    (void)fd_close(p->archive);
    mem_free(p);
    return status;
}

static void add(struct archive *a, const char *name, mode_t type, mode_t mode, const char *target, const char *data)
{
    struct archive_entry *e = la()->archive_entry_new();
    la()->archive_entry_set_pathname(e, name);
    la()->archive_entry_set_filetype(e, type);
    la()->archive_entry_set_perm(e, mode);
    la()->archive_entry_set_size(e, (la_int64_t)strlen(data));
    if (type == AE_IFLNK)
        la()->archive_entry_set_symlink(e, target);
    else if (target)
        la()->archive_entry_set_hardlink(e, target);
    assert_int_equal(la()->archive_write_header(a, e), ARCHIVE_OK);
    assert_true(la()->archive_write_data(a, data, strlen(data)) >= 0);
    la()->archive_entry_free(e);
}

static struct archive *begin(struct copy_place *p)
{
    struct archive *a = la()->archive_write_new();
    assert_int_equal(la()->archive_write_set_format_pax_restricted(a), ARCHIVE_OK);
    assert_int_equal(la()->archive_write_open_fd(a, p->archive), ARCHIVE_OK);
    return a;
}

/* In a child, as it is used: it changes directory. The exit code; *ret_message when it failed. */
static int unpack_into(struct copy_place *p, bool is_new)
{
    assert_int_equal(lseek(p->archive, 0, SEEK_SET), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct err err;
        _exit(archive_unpack(p->archive, p->out, is_new, &err) < 0 ? 1 : 0);
    }
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static int unpack(struct copy_place *p)
{
    return unpack_into(p, false);
}

static bool exists(struct copy_place *p, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", p->root, name);
    struct stat st;
    return lstat(path, &st) == 0;
}

static void trees_survive_the_way(void **state)
{
    struct copy_place *p = *state;
    AUTO_FREE char *tree = mem_printf("%s/tree", p->root), *sub = mem_printf("%s/tree/sub", p->root);
    AUTO_FREE char *file = mem_printf("%s/tree/sub/file", p->root), *l = mem_printf("%s/tree/link", p->root);
    AUTO_FREE char *fifo = mem_printf("%s/tree/fifo", p->root);
    struct err err;
    assert_int_equal(mkdir(tree, 0755), 0);
    assert_int_equal(mkdir(sub, 0700), 0);
    assert_int_equal(fd_write_file(AT_FDCWD, file, STR("content"), 0640), 0);
    assert_int_equal(chmod(file, 0640), 0);
    assert_int_equal(symlink("/etc/passwd", l), 0);
    assert_int_equal(mkfifo(fifo, 0600), 0);

    assert_int_equal(archive_pack(tree, p->archive, &err), 0);
    assert_int_equal(unpack(p), 0);

    AUTO_BUF struct buf content = BUF_INIT(64);
    AUTO_FREE char *copy = mem_printf("%s/sub/file", p->out), *copied_link = mem_printf("%s/link", p->out);
    AUTO_FREE char *copied_sub = mem_printf("%s/sub", p->out);
    struct stat st;
    char target[64] = "";
    assert_int_equal(fd_read_file(AT_FDCWD, copy, &content), 0);
    assert_true(str_eqc(buf_str(&content), "content"));
    assert_int_equal(stat(copy, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0640);
    assert_int_equal(stat(copied_sub, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0700);
    assert_true(readlink(copied_link, target, sizeof(target) - 1) > 0);
    assert_string_equal(target, "/etc/passwd");
    assert_false(exists(p, "out/fifo"));
}

static void what_is_not_there_is_an_error(void **state)
{
    struct copy_place *p = *state;
    struct err err = {0};
    assert_int_equal(archive_pack("/no/such/tree", p->archive, &err), -1);
    assert_int_not_equal(err.code, ERR_OK);
    assert_non_null(strstr(err.msg, "/no/such/tree"));
}

static void names_that_climb_are_refused(void **state)
{
    struct copy_place *p = *state;
    AUTO_FREE char *absolute = mem_printf("%s/absolute", p->root);
    const char *const names[] = {"../climbed", "a/../../climbed", absolute};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(ftruncate(p->archive, 0), 0);
        assert_int_equal(lseek(p->archive, 0, SEEK_SET), 0);
        struct archive *a = begin(p);
        add(a, names[i], AE_IFREG, 0644, NULL, "evil");
        assert_int_equal(la()->archive_write_free(a), ARCHIVE_OK);
        assert_int_equal(unpack(p), 1);
        assert_false(exists(p, "climbed"));
        assert_false(exists(p, "absolute"));
    }
}

static void links_are_not_followed(void **state)
{
    struct copy_place *p = *state;
    struct archive *a = begin(p);
    add(a, "link", AE_IFLNK, 0777, p->root, "");
    add(a, "link/through", AE_IFREG, 0644, NULL, "evil");
    assert_int_equal(la()->archive_write_free(a), ARCHIVE_OK);
    (void)unpack(p);
    assert_false(exists(p, "through"));
}

static void a_hard_link_reaches_nothing_outside(void **state)
{
    struct copy_place *p = *state;
    AUTO_FREE char *secret = mem_printf("%s/secret", p->root);
    assert_int_equal(fd_write_file(AT_FDCWD, secret, STR("secret"), 0600), 0);
    struct archive *a = begin(p);
    add(a, "stolen", AE_IFREG, 0644, secret, "");
    assert_int_equal(la()->archive_write_free(a), ARCHIVE_OK);
    assert_int_equal(unpack(p), 1);
    assert_false(exists(p, "out/stolen"));
}

/* By a link of its own, and by one to that link. */
static void links_to_links_reach_nothing_outside(void **state)
{
    struct copy_place *p = *state;
    AUTO_FREE char *secret = mem_printf("%s/secret", p->root);
    AUTO_BUF struct buf content = BUF_INIT(64);
    assert_int_equal(fd_write_file(AT_FDCWD, secret, STR("secret"), 0600), 0);
    struct archive *a = begin(p);
    add(a, "dir", AE_IFLNK, 0777, p->root, "");
    add(a, "file", AE_IFLNK, 0777, secret, "");
    add(a, "again", AE_IFREG, 0644, "file", "evil");
    add(a, "stolen", AE_IFREG, 0644, "dir/secret", "evil");
    add(a, "file", AE_IFREG, 0644, NULL, "evil");
    assert_int_equal(la()->archive_write_free(a), ARCHIVE_OK);
    (void)unpack(p);
    assert_int_equal(fd_read_file(AT_FDCWD, secret, &content), 0);
    assert_true(str_eqc(buf_str(&content), "secret"));
    struct stat st;
    assert_int_equal(stat(secret, &st), 0);
    assert_int_equal(st.st_nlink, 1);
    assert_int_equal(st.st_mode & 07777, 0600);
}

static unsigned mode_of(const char *dir, const char *name)
{
    AUTO_FREE char *path = mem_printf("%s/%s", dir, name);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void permissions_are_ours_to_limit(void **state)
{
    struct copy_place *p = *state;
    AUTO_FREE char *mine = mem_printf("%s/mine", p->out);
    struct archive *a = begin(p);
    add(a, "./", AE_IFDIR, 0700, NULL, "");
    add(a, "mine", AE_IFDIR, 0777, NULL, "");
    add(a, "mine/file", AE_IFREG, 0666, NULL, "x");
    add(a, "theirs", AE_IFDIR, 0777, NULL, "");
    assert_int_equal(la()->archive_write_free(a), ARCHIVE_OK);
    assert_int_equal(mkdir(mine, 0700), 0);
    mode_t before = umask(027);
    int r = unpack(p);
    (void)umask(before);
    assert_int_equal(r, 0);
    assert_int_equal(mode_of(p->out, "."), 0755); /* as it was */
    assert_int_equal(mode_of(p->out, "mine"), 0700);
    assert_int_equal(mode_of(p->out, "mine/file"), 0640);
    assert_int_equal(mode_of(p->out, "theirs"), 0750);
    assert_int_equal(unpack_into(p, true), 0);
    assert_int_equal(mode_of(p->out, "."), 0700);
}

static void devices_and_set_id_bits_stay_out(void **state)
{
    struct copy_place *p = *state;
    struct archive *a = begin(p);
    add(a, "null", AE_IFCHR, 0666, NULL, "");
    add(a, "fifo", AE_IFIFO, 0666, NULL, "");
    add(a, "program", AE_IFREG, 06755, NULL, "x");
    assert_int_equal(la()->archive_write_free(a), ARCHIVE_OK);
    assert_int_equal(unpack(p), 0);
    AUTO_FREE char *program = mem_printf("%s/program", p->out);
    struct stat st;
    assert_int_equal(stat(program, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0755);
    assert_false(exists(p, "out/null"));
    assert_false(exists(p, "out/fifo"));
}

static void garbage_is_an_error(void **state)
{
    struct copy_place *p = *state;
    static const char garbage[4096] = "this is no archive";
    assert_int_equal(fd_write_all(p->archive, garbage, sizeof(garbage)), 0);
    assert_int_equal(unpack(p), 1);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(trees_survive_the_way, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_an_error, set_up, tear_down),
        cmocka_unit_test_setup_teardown(names_that_climb_are_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_are_not_followed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_hard_link_reaches_nothing_outside, set_up, tear_down),
        cmocka_unit_test_setup_teardown(links_to_links_reach_nothing_outside, set_up, tear_down),
        cmocka_unit_test_setup_teardown(permissions_are_ours_to_limit, set_up, tear_down),
        cmocka_unit_test_setup_teardown(devices_and_set_id_bits_stay_out, set_up, tear_down),
        cmocka_unit_test_setup_teardown(garbage_is_an_error, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
