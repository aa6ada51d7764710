/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "config/config.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

static struct config *parse(const char *text)
{
    struct config *c = NULL;
    struct err err = {0};
    if (config_parse("t.yaml", str_of(text), &c, &err) < 0)
        fail_msg("%s", err.msg);
    return c;
}

static void assert_refused(const char *text, const char *message)
{
    struct config *c = NULL;
    struct err err = {0};
    assert_int_equal(config_parse("t.yaml", str_of(text), &c, &err), -1);
    assert_null(c);
    assert_int_equal(err.code, ERR_INVALID_ARGUMENT);
    assert_string_equal(err.msg, message);
}

static void nothing_given_means_defaults(void **state)
{
    (void)state;
    static const char *const empty[] = {"", "# only a comment\n", "---\n", "{}\n"};
    for (size_t i = 0; i < ARRAY_SIZE(empty); i++) {
        AUTO(config_free) struct config *c = parse(empty[i]);
        assert_string_equal(c->state_dir, "/var/lib/cove");
        assert_string_equal(c->run_dir, "/run/cove");
        assert_int_equal(c->n_listen, 1);
        assert_string_equal(c->listen[0].text, "127.0.0.1:7070");
        assert_true(c->listen[0].is_loopback);
        assert_null(c->domain);
        assert_true(c->disk_reserve_bytes == CONFIG_RESERVE_AUTO);
        assert_int_equal(c->pool_kind, CONFIG_POOL_AUTO);
        assert_int_equal(c->pool_bytes, 0);
        assert_true(c->default_disk_bytes == CONFIG_DISK_AUTO);
        assert_false(c->behind_tls_proxy);
        assert_int_equal(c->default_timeout_ms, 300000);
        assert_int_equal(c->log_level, LOG_INFO);
        assert_true(c->observe_processes && c->observe_files);
    }
}

static void every_key_is_read(void **state)
{
    (void)state;
    AUTO(config_free)
    struct config *c = parse("state_dir: /srv//cove/\n"
                             "run_dir: \"/run/c\"\n"
                             "listen:\n"
                             "  - 127.0.0.1:7070\n"
                             "  - '[::1]:7071'\n"
                             "behind_tls_proxy: true\n"
                             "domain: boxes.example.org\n"
                             "pool: {kind: reflink, size: 20GiB}\n"
                             "disk_reserve: 3GiB\n"
                             "owner: 1000\n"
                             "log_level: debug\n"
                             "defaults: {memory: 1GiB, cpus: 1.5, pids: 200, disk: 0, timeout: 90s}\n"
                             "limits:\n"
                             "  sandboxes: 12\n"
                             "  timeout: 2h\n"
                             "keep: {events: 5000, ended: 20, ended_for: 3d}\n"
                             "template:\n"
                             "  mirror: http://deb.example.org/debian\n"
                             "  packages: [ripgrep, g++-12]\n");
    assert_string_equal(c->state_dir, "/srv/cove");
    assert_string_equal(c->run_dir, "/run/c");
    assert_int_equal(c->n_listen, 2);
    assert_string_equal(c->listen[1].text, "[::1]:7071");
    assert_true(c->listen[1].is_loopback);
    assert_true(c->behind_tls_proxy);
    assert_string_equal(c->domain, "boxes.example.org");
    assert_int_equal(c->pool_kind, CONFIG_POOL_REFLINK);
    assert_int_equal(c->pool_bytes, 20ULL << 30);
    assert_int_equal(c->disk_reserve_bytes, 3ULL << 30);
    assert_int_equal(c->owner_uid, 1000);
    assert_int_equal(c->log_level, LOG_DEBUG);
    assert_int_equal(c->default_memory_bytes, 1ULL << 30);
    assert_int_equal(c->default_cpu_milli, 1500);
    assert_int_equal(c->default_pids, 200);
    assert_int_equal(c->default_disk_bytes, 0);
    assert_int_equal(c->default_timeout_ms, 90000);
    assert_int_equal(c->max_sandboxes, 12);
    assert_int_equal(c->max_timeout_ms, 7200000);
    assert_int_equal(c->keep_events, 5000);
    assert_int_equal(c->keep_ended, 20);
    assert_int_equal(c->keep_ended_ms, 3 * 86400000ULL);
    assert_string_equal(c->template_mirror, "http://deb.example.org/debian");
    assert_int_equal(c->n_template_packages, 2);
    assert_string_equal(c->template_packages[1], "g++-12");
}

static void mistakes_name_their_line(void **state)
{
    (void)state;
    assert_refused("run_dir: /r\nmemroy: 5\n", "t.yaml:2: unknown key \"memroy\"");
    assert_refused("defaults:\n  memory: 1G\n  cpu: 2\n", "t.yaml:3: unknown key \"defaults.cpu\"");
    assert_refused("pool: {kind: zfs}\n", "t.yaml:1: pool.kind must be auto, btrfs, reflink or copy");
    assert_refused("pool: {size: 1MiB}\n", "t.yaml:1: pool.size is out of range: 2 GiB at least");
    assert_refused("owner: 1\n\nowner: 2\n", "t.yaml:3: \"owner\" is given twice");
    assert_refused("limits: {sandboxes: 1, sandboxes: 1}\n", "t.yaml:1: \"limits.sandboxes\" is given twice");
    assert_refused("limits: {sandboxes: 1}\nlimits: {timeout: 1h}\n", "t.yaml:2: \"limits\" is given twice");
    assert_refused("limits: 5\n", "t.yaml:1: \"limits\" is a section of keys");
    assert_refused("owner: {a: 1}\n", "t.yaml:1: \"owner\" is no section");
    assert_refused("owner: [1]\n", "t.yaml:1: owner takes one value, not a list");
    assert_refused("listen: []\n", "t.yaml:1: an empty list says nothing; leave the key out");
    assert_refused("listen: [[a]]\n", "t.yaml:1: a list holds plain values only");
    assert_refused("- a\n", "t.yaml:1: expected keys and values");
    assert_refused("a\n", "t.yaml:1: expected keys and values");
    assert_refused("owner: 1\n---\nowner: 2\n", "t.yaml:2: one document only");
    assert_refused("a: &x 1\n", "t.yaml:1: anchors, aliases and tags have no use here");
    assert_refused("owner: *x\n", "t.yaml:1: anchors, aliases and tags have no use here");
    assert_refused("owner: !!int 5\n", "t.yaml:1: anchors, aliases and tags have no use here");
    assert_refused("limits.timeout: 1h\n", "t.yaml:1: a key must be a short word");
    assert_refused("? [a]\n: 1\n", "t.yaml:1: a key must be a short word");
}

static void wrong_values_are_refused(void **state)
{
    (void)state;
    assert_refused("state_dir: var/lib\n", "t.yaml:1: state_dir must be an absolute path");
    assert_refused("state_dir:\n", "t.yaml:1: state_dir must be an absolute path");
    assert_refused(
        "run_dir: /0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789/0123456789\n",
        "t.yaml:1: run_dir is longer than 80 bytes");
    assert_refused("behind_tls_proxy: yes\n", "t.yaml:1: behind_tls_proxy must be true or false");
    assert_refused("owner: -1\n", "t.yaml:1: owner must be a whole number");
    assert_refused("owner: 4294967295\n", "t.yaml:1: owner is out of range: 4294967294 at most");
    assert_refused("log_format: xml\n", "t.yaml:1: log_format must be text or json");
    assert_refused("log_level: loud\n", "t.yaml:1: log_level must be debug, info, warn or error");
    assert_refused("defaults: {memory: 1X}\n", "t.yaml:1: defaults.memory must be a size such as 10GiB");
    assert_refused("defaults: {checkpoint: sometimes}\n",
                   "t.yaml:1: defaults.checkpoint must be action, a number of actions, risk or off");
    assert_refused("defaults: {checkpoint: 0}\n",
                   "t.yaml:1: defaults.checkpoint must be action, a number of actions, risk or off");
    assert_refused("keep: {events: 10}\n", "t.yaml:1: keep.events is out of range: 1000 at least");
    assert_refused("defaults: {memory: 1M}\n", "t.yaml:1: defaults.memory is out of range: 16 MiB at least");
    assert_refused("defaults: {cpus: 5000}\n", "t.yaml:1: defaults.cpus is out of range: 1024 at most");
    assert_refused("limits: {timeout: 1ms}\n", "t.yaml:1: limits.timeout is out of range: 1s at least");
    assert_refused("builds: {timeout: 31d}\n", "t.yaml:1: builds.timeout is out of range: 30d at most");
    assert_refused("builds: {disk: much}\n", "t.yaml:1: builds.disk must be a size such as 10GiB");
    assert_refused(
        "owner: 0\nlisten: [::1]:7070\n",
        "t.yaml:2: not YAML: did not find expected node content; an IPv6 address needs quotes: \"[::1]:7070\"");
    assert_refused("owner: 0\nlisten: [\n", "t.yaml:3: not YAML: did not find expected node content");
    assert_refused("defaults: {timeout: soon}\n", "t.yaml:1: defaults.timeout must be a duration such as 5m");
    assert_refused("defaults: {cpus: many}\n", "t.yaml:1: defaults.cpus must be a number such as 1.5");
    assert_refused("defaults: {timeout: 48h}\n", "t.yaml: defaults.timeout is larger than limits.timeout");
    assert_refused("domain: a.B.c\n", "t.yaml:1: domain must be a host name in lower case, without port");
    assert_refused("domain: a..c\n", "t.yaml:1: domain must be a host name in lower case, without port");
    assert_refused("domain: a.c:80\n", "t.yaml:1: domain must be a host name in lower case, without port");
    assert_refused("template: {mirror: ftp://x}\n", "t.yaml:1: template.mirror must be an http, https or file URL");
    assert_refused("template: {packages: [ok, --exec]}\n",
                   "t.yaml:1: template.packages: \"--exec\" is not the name of a Debian package");
    assert_refused("listen: 7070\n",
                   "t.yaml:1: \"7070\" is not an address to listen on; write 127.0.0.1:7070 or [::1]:7070");
}

static void listen_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        bool ok, is_loopback;
    } cases[] = {
        {"127.0.0.1:7070", true, true},
        {"127.9.9.9:1", true, true},
        {"localhost:80", true, true},
        {"[::1]:80", true, true},
        {"[::ffff:127.0.0.1]:80", true, true},
        {"0.0.0.0:80", true, false},
        {"*:80", true, false},
        {"[::]:80", true, false},
        {"192.0.2.1:65535", true, false},
        {"127.0.0.1:0", true, true},
        {"127.0.0.1:65536", false, false},
        {"127.0.0.1", false, false},
        {":80", false, false},
        {"::1:80", false, false},
        {"[::1]", false, false},
        {"example.org:80", false, false},
        {"127.0.0.1:", false, false},
        {"", false, false},
        {"127.0.0.1:-1", false, false},
        {"[127.0.0.1]:80", false, false},
        {"[]:80", false, false},
    };
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct config_listen l = {0};
        struct err err = {0};
        assert_int_equal(config_listen_parse(str_of(cases[i].text), &l, &err), cases[i].ok ? 0 : -1);
        assert_int_equal(l.is_loopback, cases[i].is_loopback);
        mem_free(l.text);
    }
}

static void the_public_needs_key_and_tls(void **state)
{
    (void)state;
    struct err err = {0};
    AUTO(config_free) struct config *inside = parse("listen: ['127.0.0.1:1', '[::1]:1']\n");
    assert_int_equal(config_check_listen(inside, false, &err), 0);

    AUTO(config_free) struct config *bare = parse("listen: ['127.0.0.1:1', '0.0.0.0:1']\n");
    assert_int_equal(config_check_listen(bare, false, &err), -1);
    assert_non_null(strstr(err.msg, "COVE_API_KEY"));
    assert_int_equal(config_check_listen(bare, true, &err), -1);
    assert_non_null(strstr(err.msg, "behind_tls_proxy"));

    AUTO(config_free) struct config *proxied = parse("listen: '0.0.0.0:1'\nbehind_tls_proxy: true\n");
    assert_int_equal(config_check_listen(proxied, false, &err), -1);
    assert_int_equal(config_check_listen(proxied, true, &err), 0);

    AUTO(config_free) struct config *tls = parse("listen_tls: ['0.0.0.0:443', '[::]:443']\n");
    assert_true(tls->asks_for_tls);
    assert_int_equal(tls->n_listen_tls, 2);
    assert_int_equal(config_check_listen(tls, false, &err), -1);
    assert_int_equal(config_check_listen(tls, true, &err), 0);
    AUTO(config_free) struct config *silent = parse("");
    assert_false(silent->asks_for_tls);
    assert_int_equal(silent->n_listen_tls, 1);
    assert_string_equal(silent->listen_tls[0].text, "127.0.0.1:7443");
}

static void images_are_counted(void **state)
{
    (void)state;
    AUTO_BUF struct buf text = BUF_INIT(1 << 16);
    buf_append_cstr(&text, "images:\n  insecure: [r.test]\n  aliases:\n");
    for (int i = 0; i < CONFIG_IMAGES_MAX; i++)
        buf_printf(&text, "    - img%d=base\n", i);
    AUTO_FREE char *most = mem_printf("%.*s", STR_ARG(buf_str(&text)));
    AUTO_FREE char *more = mem_printf("%s    - more=base\n", most);
    AUTO(config_free) struct config *c = parse(most);
    assert_non_null(strstr(c->builds, "insecure=r.test\nalias=img0=base\n"));
    assert_non_null(strstr(c->builds, "alias=img63=base\n"));
    assert_refused(more, "t.yaml:68: images.aliases: more than 64");
}

static void files_and_environment(void **state)
{
    (void)state;
    char path[] = "/tmp/cove-config-XXXXXX";
    AUTO_CLOSE int fd = mkostemp(path, O_CLOEXEC);
    assert_true(fd >= 0);
    struct str text =
        STR("state_dir: /srv/a\nlisten: 127.0.0.1:1\nimages: {aliases: [a=base, b=base], insecure: [r.test]}\n");
    assert_int_equal(fd_write_all(fd, text.p, text.n), 0);

    struct err err = {0};
    struct config *c = NULL;
    assert_int_equal(setenv("COVE_RUN", "/run/else", 1), 0);
    assert_int_equal(setenv("COVE_LISTEN", "127.0.0.1:2, [::1]:3", 1), 0);
    assert_int_equal(setenv("COVE_IMAGE_ALIASES", "a=other,c=base", 1), 0);
    assert_int_equal(config_load(path, &c, &err), 0);
    assert_string_equal(c->state_dir, "/srv/a");
    assert_string_equal(c->run_dir, "/run/else");
    assert_int_equal(c->n_listen, 2);
    assert_string_equal(c->listen[1].text, "[::1]:3");
    assert_string_equal(c->builds, "insecure=r.test\nalias=a=other\nalias=c=base\n");
    config_free(c);
    assert_int_equal(unsetenv("COVE_IMAGE_ALIASES"), 0);

    assert_int_equal(setenv("COVE_LISTEN", "nowhere", 1), 0);
    assert_int_equal(config_load(path, &c, &err), -1);
    assert_non_null(strstr(err.msg, "environment variable COVE_LISTEN: "));
    assert_int_equal(unsetenv("COVE_LISTEN"), 0);

    assert_int_equal(setenv("COVE_CONFIG", path, 1), 0);
    assert_int_equal(config_load(NULL, &c, &err), 0);
    assert_string_equal(c->state_dir, "/srv/a");
    config_free(c);

    assert_int_equal(unlink(path), 0);
    assert_int_equal(config_load(NULL, &c, &err), -1); /* named, so it must be there */
    assert_non_null(strstr(err.msg, path));
    assert_int_equal(unsetenv("COVE_CONFIG"), 0);
    assert_int_equal(unsetenv("COVE_RUN"), 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_given_means_defaults),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(mistakes_name_their_line),
        cmocka_unit_test(wrong_values_are_refused),
        cmocka_unit_test(listen_addresses),
        cmocka_unit_test(the_public_needs_key_and_tls),
        cmocka_unit_test(images_are_counted),
        cmocka_unit_test(files_and_environment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
