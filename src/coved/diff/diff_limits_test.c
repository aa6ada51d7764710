/* SPDX-License-Identifier: Apache-2.0 */
/* What a comparison may cost, however what is compared was made; what is Cove's own; when nobody waits any more. */
#include "base/fd.h"
#include "base/mem.h"
#include "coved/diff/diff.h"
#include "coved/diff/test_rig.h"
#include "kernel/netns.h"

#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { OUT_MAX = 1 << 20, DEPTH = 20, LAYERS = 10, SIBLINGS = 200, FILES = 2000 };

/* "/x<layer>0/x<layer>1/..." of n parts. */
static void chain_path(char ret_path[static 256], int layer, int n)
{
    size_t at = 0;
    ret_path[0] = 0;
    for (int i = 0; i < n; i++)
        at += (size_t)snprintf(ret_path + at, 256 - at, "/x%d%d", layer, i);
    assert_true(at < 256);
}

/* In each layer each directory of a chain has another name, and its own path to where it was, where there is a whiteout
 * now. */
static void make_chains(void)
{
    char here[256], below[256], path[300];
    for (int layer = LAYERS - 1; layer >= 0; layer--) {
        for (int n = 1; n <= DEPTH; n++) {
            chain_path(here, layer, n);
            chain_path(below, layer + 1, n);
            (void)snprintf(path, sizeof(path), "%d%s", layer, here);
            diff_rig_dir(path);
            if (layer == LAYERS - 1)
                continue;
            diff_rig_mark(path, "redirect", below);
            chain_path(here, layer, n - 1);
            (void)snprintf(path, sizeof(path), "%d%s/x%d%d", layer, here, layer + 1, n - 1);
            diff_rig_whiteout(path);
        }
    }
    chain_path(here, LAYERS - 1, DEPTH);
    (void)snprintf(path, sizeof(path), "%d%s/f", LAYERS - 1, here);
    diff_rig_file(path, "f");
}

static void test_chains_that_were_renamed_again_and_again(void **state)
{
    (void)state;
    AUTO_BUF struct buf wanted = BUF_INIT(OUT_MAX);
    char here[256];
    make_chains();
    for (int n = 1; n <= DEPTH; n++) {
        chain_path(here, 0, n);
        (void)buf_printf(&wanted, "%s Ad, ", here + 1);
    }
    (void)buf_printf(&wanted, "%s/f Af, x90 Dd", here + 1);
    (void)buf_append_char(&wanted, 0);
    uint64_t used = diff_rig_expect("9", "0123456789", 1, buf_data(&wanted));
    /* Once for each part of a directory's path in each layer, beside its being listed and looked for in the views: not
     * a power of the layers. */
    assert_in_range(used, 1, DEPTH * DEPTH * LAYERS + 8 * DEPTH * LAYERS);
}

static void test_what_was_renamed_from_one_place_costs_one_look_up_for_each_layer(void **state)
{
    (void)state;
    char path[512], from[256] = "", text[300];
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    uint64_t used;
    for (int i = 0; i < DEPTH; i++) {
        (void)snprintf(from + strlen(from), sizeof(from) - strlen(from), "/deep%d", i);
        (void)snprintf(path, sizeof(path), "2%s", from);
        diff_rig_dir(path);
    }
    diff_rig_dir("0/new");
    for (int i = 0; i < SIBLINGS; i++) {
        (void)snprintf(path, sizeof(path), "2%s/%d", from, i);
        diff_rig_dir(path);
        (void)snprintf(path, sizeof(path), "0/new/%d", i);
        diff_rig_dir(path);
        (void)snprintf(text, sizeof(text), "%s/%d", from, i);
        diff_rig_mark(path, "redirect", text);
    }
    assert_int_equal(diff_rig_run(&(struct diff_rig_run){0}, "12", "012", 2, &out, &used), 0);
    /* Listed, found above, looked for in 1 (whose place says at once that there is nothing) and 2. */
    assert_in_range(used, 3 * SIBLINGS, 4 * SIBLINGS + 4 * DEPTH);
}

static void test_it_ends_after_so_many_look_ups(void **state)
{
    (void)state;
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    uint64_t all, used;
    make_chains();
    assert_int_equal(diff_rig_run(&(struct diff_rig_run){0}, "9", "0123456789", 1, &out, &all), 0);
    assert_int_equal(diff_rig_run(&(struct diff_rig_run){.lookups_most = all}, "9", "0123456789", 1, &out, &used), 0);
    assert_int_equal(used, all);
    const uint64_t too_few[] = {all - 1, all / 2, 1};
    for (size_t i = 0; i < ARRAY_SIZE(too_few); i++) {
        const struct diff_rig_run how = {.lookups_most = too_few[i]};
        assert_int_equal(diff_rig_run(&how, "9", "0123456789", 1, &out, &used), -EDQUOT);
        assert_int_equal(used, too_few[i]);
    }
}

static void test_it_ends_when_nobody_reads_though_it_has_nothing_to_say(void **state)
{
    (void)state;
    char path[32];
    AUTO_BUF struct buf out = BUF_INIT(OUT_MAX);
    uint64_t all, used;
    for (int i = 0; i < FILES; i++) {
        (void)snprintf(path, sizeof(path), "0/%d", i);
        diff_rig_file(path, "same");
        path[0] = '1';
        diff_rig_file(path, "same");
    }
    assert_int_equal(diff_rig_run(&(struct diff_rig_run){0}, "1", "01", 1, &out, &all), 0);
    assert_int_equal(buf_len(&out), 0);
    assert_int_equal(diff_rig_run(&(struct diff_rig_run){.reader_leaves = true}, "1", "01", 1, &out, &used), -EPIPE);
    assert_in_range(used, 1, 1024);
    assert_true(all > 2 * 1024);
}

static void write_at(const char *path, off_t at, const char *text)
{
    AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, text, strlen(text), at), strlen(text));
    assert_int_equal(ftruncate(fd, (off_t)1 << 41), 0);
}

static void test_holes_are_not_read(void **state)
{
    (void)state;
    const off_t far = (off_t)1 << 40;
    write_at("1/same", far, "x");
    write_at("0/same", far, "x");
    write_at("1/hole", far, "");
    write_at("0/hole", far, "x");
    write_at("1/other", far, "a");
    write_at("0/other", far, "b");
    uint64_t used = diff_rig_expect("1", "01", 1, "hole Mf, other Mf");
    assert_in_range(used, 1, 200);
}

#define HOSTS "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 "
#define RESOLVER "nameserver " NETNS_DNS_ADDRESS "\noptions timeout:3 attempts:2\n"

static void own(const char *layer, const char *hostname, const char *hosts, const char *resolver)
{
    static const char *const names[] = {"hostname", "hosts", "resolv.conf"};
    const char *const texts[] = {hostname, hosts, resolver};
    char path[32];
    (void)snprintf(path, sizeof(path), "%s/etc", layer);
    (void)mkdir(path, 0755);
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        (void)snprintf(path, sizeof(path), "%s/etc/%s", layer, names[i]);
        (void)unlink(path);
        if (texts[i])
            diff_rig_file(path, texts[i]);
    }
}

static void test_what_cove_wrote_is_no_change(void **state)
{
    (void)state;
    static const char name[] = "cove-ab12cdf", other[] = "cove-zzzzzz10a";
    const struct diff_rig_run live = {.box = name}, kept = {0};
    own("1", NULL, "127.0.0.1 localhost\n", "");
    own("0", "cove-ab12cdf\n", HOSTS "cove-ab12cdf\n", RESOLVER);
    (void)diff_rig_expect_of(&live, "1", "01", 1, "");
    (void)diff_rig_expect_of(&kept, "1", "01", 1, "");
    (void)diff_rig_expect_of(&live, "2", "01", 0, "etc Ad");
    /* As another one's, they are no living sandbox's own. */
    (void)diff_rig_expect_of(&(struct diff_rig_run){.box = other}, "1", "01", 1, "etc/hostname Af, etc/hosts Mf");
    /* Between two that both are: another name is no change either. */
    own("1", "cove-zzzzzz10a\n", HOSTS "cove-zzzzzz10a\n", RESOLVER);
    (void)diff_rig_expect_of(&live, "1", "01", 1, "");
    /* What the sandbox had written below, and Cove above: Cove did that. What the sandbox writes above: the sandbox
     * did. */
    own("1", "cove-zzzzzz10a\n", HOSTS "cove-zzzzzz10a\n10.1.1.1 db\n", RESOLVER);
    (void)diff_rig_expect_of(&live, "1", "01", 1, "");
    (void)diff_rig_expect_of(&live, "012", "12", 2, "etc/hostname Mf, etc/hosts Mf");
    (void)diff_rig_expect_of(&kept, "012", "12", 2, "etc/hosts Mf");
}

static void test_back_to_what_no_sandbox_wrote(void **state)
{
    (void)state;
    static const char name[] = "cove-ab12cdf", other[] = "cove-zzzzzz10a";
    const struct diff_rig_run live = {.a_box = name}, kept = {0};
    own("2", NULL, "127.0.0.1 localhost\n", "");
    own("1", NULL, HOSTS "cove-zzzzzz10a\n10.1.1.1 db\n", NULL);
    own("0", "cove-ab12cdf\n", HOSTS "cove-ab12cdf\n", RESOLVER);
    (void)diff_rig_expect_of(&live, "02", "2", 1, "");
    (void)diff_rig_expect_of(&kept, "02", "2", 1, "");
    (void)diff_rig_expect_of(&kept, "012", "2", 1, "");
    (void)diff_rig_expect_of(&(struct diff_rig_run){.a_box = other}, "02", "2", 1, "etc/hostname Df, etc/hosts Mf");
    /* What a sandbox had made of it is told: what it wrote, and what it deleted, of which there is no trace in layer 1
     * (hostname). */
    (void)diff_rig_expect_of(&kept, "12", "2", 1, "etc/hosts Mf");
    (void)diff_rig_expect_of(&kept, "012", "12", 2, "etc/hostname Df, etc/hosts Mf, etc/resolv.conf Mf");
    (void)diff_rig_expect_of(&kept, "02", "12", 1, "etc/hostname Df, etc/hosts Mf, etc/resolv.conf Mf");
    /* Another one's layer is not below. */
    (void)diff_rig_expect_of(&kept, "0", "2", 0, "etc/hostname Df, etc/hosts Mf, etc/resolv.conf Mf");
    own("0", "web1\n", HOSTS "cove-ab12cdf\n10.1.1.1 db\n", RESOLVER "search x\n");
    (void)diff_rig_expect_of(&kept, "02", "2", 1, "etc/hostname Df, etc/hosts Mf, etc/resolv.conf Mf");
}

static void test_what_the_sandbox_made_of_it_is_one(void **state)
{
    (void)state;
    static const char name[] = "cove-ab12cdf";
    static const char *const bad[] = {"",
                                      "\n",
                                      "web1\n",
                                      "cove-ab12cdf",
                                      "cove-ab12cdf\n\n",
                                      "cove-ab12c\n",
                                      "cove-ab12cdx\n",
                                      "cove-AB12cdf\n",
                                      "cove-ab12cd123456789\n",
                                      "xcove-ab12cdf\n"};
    const struct diff_rig_run live = {.box = name}, kept = {0};
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        AUTO_FREE char *hosts = mem_printf("%s%s", HOSTS, bad[i]);
        own("0", bad[i], hosts, RESOLVER " ");
        (void)diff_rig_expect_of(&live, "1", "01", 1, "etc Ad, etc/hostname Af, etc/hosts Af, etc/resolv.conf Af");
        (void)diff_rig_expect_of(&kept, "1", "01", 1, "etc Ad, etc/hostname Af, etc/hosts Af, etc/resolv.conf Af");
    }
    own("0", "cove-ab12cdf\n", HOSTS "cove-ab12cdf\n10.1.1.1 db\n", RESOLVER "search x\n");
    (void)diff_rig_expect_of(&live, "1", "01", 1, "etc Ad, etc/hosts Af, etc/resolv.conf Af");
    own("0", "cove-ab12cdf\n", HOSTS "cove-ab12cdf\n", RESOLVER);
    assert_int_equal(chmod("0/etc/hostname", 0666), 0);
    assert_int_equal(chown("0/etc/hosts", 1000, 0), 0);
    assert_int_equal(unlink("0/etc/resolv.conf"), 0);
    assert_int_equal(symlink("hosts", "0/etc/resolv.conf"), 0);
    (void)diff_rig_expect_of(&live, "1", "01", 1, "etc Ad, etc/hostname Af, etc/hosts Af, etc/resolv.conf Al");
    own("1", "cove-ab12cdf\n", HOSTS "cove-ab12cdf\n", RESOLVER);
    own("0", NULL, NULL, NULL);
    diff_rig_whiteout("0/etc/hostname");
    (void)diff_rig_expect_of(&live, "1", "01", 1, "etc/hostname Df");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, diff_rig_set_up, diff_rig_tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_chains_that_were_renamed_again_and_again),
        TEST(test_what_was_renamed_from_one_place_costs_one_look_up_for_each_layer),
        TEST(test_it_ends_after_so_many_look_ups),
        TEST(test_it_ends_when_nobody_reads_though_it_has_nothing_to_say),
        TEST(test_holes_are_not_read),
        TEST(test_what_cove_wrote_is_no_change),
        TEST(test_what_the_sandbox_made_of_it_is_one),
        TEST(test_back_to_what_no_sandbox_wrote),
    };
    if (geteuid() != 0) {
        print_message("SKIP: whiteouts and overlayfs's attributes need root\n");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
