/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "base/mem.h"
#include "egress/vault/vault.h"
#include "egress/vault/vault_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif

struct fixture {
    char path[64];
    int dir_fd;
    struct vault *vault;
    struct err err;
};

static int setup(void **state)
{
    struct fixture *f = mem_new(struct fixture);
    (void)snprintf(f->path, sizeof(f->path), "/tmp/cove-vault-test-XXXXXX");
    if (!mkdtemp(f->path))
        return -1;
    f->dir_fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = f;
    return vault_open(f->dir_fd, &f->vault, &f->err);
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    vault_close(f->vault);
    static const char *const files[] = {"vault.key", "vault.json"};
    for (size_t i = 0; i < ARRAY_SIZE(files); i++)
        (void)unlinkat(f->dir_fd, files[i], 0);
    (void)fd_close(f->dir_fd);
    int r = rmdir(f->path); /* fails when anything else was left there */
    mem_free(f);
    return r;
}

static void reopen(struct fixture *f)
{
    vault_close(TAKE_PTR(f->vault));
    assert_int_equal(vault_open(f->dir_fd, &f->vault, &f->err), 0);
}

static void set(struct fixture *f, const char *name, const char *value)
{
    assert_int_equal(vault_set(f->vault, str_of(name), str_of(value), &f->err), 0);
}

static void assert_value(struct fixture *f, const char *name, const char *value)
{
    struct str got;
    bool is_there = vault_get(f->vault, str_of(name), &got);
    assert_int_equal(is_there, value != NULL);
    if (value)
        assert_true(str_eqc(got, value));
}

static bool add_name(void *ctx, const char *name, uint64_t set_at_us)
{
    assert_true(set_at_us > 0);
    buf_printf(ctx, "%s ", name);
    return true;
}

static void assert_names(struct fixture *f, const char *names)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    vault_each(f->vault, add_name, &b);
    assert_true(str_eqc(buf_str(&b), names));
}

static void what_is_set_is_there_and_stays(void **state)
{
    struct fixture *f = *state;
    assert_names(f, "");
    set(f, "b", "second");
    set(f, "a", "first");
    set(f, "ab", "third");
    set(f, "b", "second, changed");
    for (int i = 0; i < 2; i++) {
        assert_names(f, "a ab b ");
        assert_value(f, "a", "first");
        assert_value(f, "ab", "third");
        assert_value(f, "b", "second, changed");
        assert_value(f, "B", NULL);
        assert_value(f, "", NULL);
        reopen(f);
    }
    assert_int_equal(vault_remove(f->vault, STR("a"), &f->err), 0);
    assert_int_equal(vault_remove(f->vault, STR("a"), &f->err), -1);
    assert_int_equal(f->err.code, ERR_NOT_FOUND);
    assert_names(f, "ab b ");
    reopen(f);
    assert_names(f, "ab b ");
    assert_value(f, "ab", "third");
}

static void what_cannot_be_a_secret_is_refused(void **state)
{
    struct fixture *f = *state;
    static char large[SECRET_VALUE_MAX + 1], name[SECRET_NAME_MAX + 2];
    memset(large, 'x', sizeof(large));
    memset(name, 'n', sizeof(name) - 1);
    static const struct str names[] = {{"", 0},     {"1a", 2},       {"-", 1},  {"a b", 3},
                                       {"a\0b", 3}, {"\xc3\xa4", 2}, {"a/b", 3}};
    static const struct str values[] = {{"", 0}, {"a\nb", 3}, {"a\rb", 3}, {"a\0b", 3}};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        assert_int_equal(vault_set(f->vault, names[i], STR("v"), &f->err), -1);
        assert_int_equal(f->err.code, ERR_INVALID_ARGUMENT);
    }
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        assert_int_equal(vault_set(f->vault, STR("n"), values[i], &f->err), -1);
        assert_int_equal(f->err.code, ERR_INVALID_ARGUMENT);
    }
    assert_int_equal(vault_set(f->vault, STR("n"), str_n(large, sizeof(large)), &f->err), -1);
    assert_int_equal(vault_set(f->vault, str_of(name), STR("v"), &f->err), -1);
    assert_names(f, "");
    assert_int_equal(vault_set(f->vault, str_n(name, SECRET_NAME_MAX), str_n(large, SECRET_VALUE_MAX), &f->err), 0);
    reopen(f);
    name[SECRET_NAME_MAX] = '\0';
    large[SECRET_VALUE_MAX] = '\0';
    assert_value(f, name, large);
}

static void bytes_that_are_no_text_survive(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(vault_set(f->vault, STR("bytes"), STR("\xff\xfe\x01\t\"\\"), &f->err), 0);
    reopen(f);
    assert_value(f, "bytes", "\xff\xfe\x01\t\"\\");
}

static void nothing_on_disk_is_readable_or_guessable(void **state)
{
    struct fixture *f = *state;
    set(f, "token", "correct-horse-battery");
    AUTO_BUF struct buf one = BUF_INIT(1 << 20), two = BUF_INIT(1 << 20);
    assert_int_equal(fd_read_file(f->dir_fd, "vault.json", &one), 0);
    assert_null(memmem(buf_data(&one), buf_len(&one), "correct", 7));
    set(f, "token", "correct-horse-battery");
    assert_int_equal(fd_read_file(f->dir_fd, "vault.json", &two), 0);
    /* The box of the same value is another each time. */
    const char *a = memmem(buf_data(&one), buf_len(&one), "\"box\":\"", 7),
               *b = memmem(buf_data(&two), buf_len(&two), "\"box\":\"", 7);
    assert_non_null(a);
    assert_non_null(b);
    assert_memory_not_equal(a + 7, b + 7, 40);
    struct stat st;
    assert_int_equal(fstatat(f->dir_fd, "vault.key", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(fstatat(f->dir_fd, "vault.json", &st, 0), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
}

/* Fills the file at once: setting each would take a thousand syncs. */
static void fill(struct fixture *f)
{
    struct vault_store *store;
    struct secrets all, old;
    bool is_in_force;
    vault_close(TAKE_PTR(f->vault));
    assert_int_equal(vault_store_open(f->dir_fd, &store, &old, &f->err), 0);
    all = (struct secrets){.items = mem_array(SECRETS_MAX, sizeof(struct secret)), .n = SECRETS_MAX};
    assert_int_equal(locked_new(8 * SECRETS_MAX, &all.region), 0);
    for (size_t i = 0; i < SECRETS_MAX; i++) {
        struct secret *one = &all.items[i];
        *one = (struct secret){.set_at_us = 1, .at = 8 * i, .n = 5};
        (void)snprintf(one->name, sizeof(one->name), "n%04zu", i);
        memcpy(all.region.p + one->at, one->name, one->n);
    }
    assert_int_equal(vault_store_save(store, &all, &is_in_force, &f->err), 0);
    vault_store_close(store);
    secrets_fini(&all);
    secrets_fini(&old);
    assert_int_equal(vault_open(f->dir_fd, &f->vault, &f->err), 0);
}

static void there_is_a_most(void **state)
{
    struct fixture *f = *state;
    fill(f);
    assert_value(f, "n1023", "n1023");
    assert_int_equal(vault_set(f->vault, STR("one.more"), STR("v"), &f->err), -1);
    assert_int_equal(f->err.code, ERR_RESOURCE_EXHAUSTED);
    set(f, "n0007", "changed");
    reopen(f);
    assert_value(f, "n0007", "changed");
    assert_value(f, "n1023", "n1023");
    assert_int_equal(vault_remove(f->vault, STR("n0007"), &f->err), 0);
    set(f, "one.more", "v");
}

static void sealed_values_open_for_their_purpose_only(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf sealed = BUF_INIT(SEALED_MAX), plain = BUF_INIT(SECRET_VALUE_MAX);
    static char large[SECRET_VALUE_MAX + 1];
    assert_int_equal(vault_seal(f->vault, STR("header i1"), STR("line\nline"), &sealed), 0);
    reopen(f);
    assert_int_equal(vault_unseal(f->vault, STR("header i1"), buf_str(&sealed), &plain), 0);
    assert_true(str_eqc(buf_str(&plain), "line\nline"));
    buf_clear(&plain);
    assert_int_equal(vault_unseal(f->vault, STR("header i2"), buf_str(&sealed), &plain), -EBADMSG);
    assert_int_equal(vault_unseal(f->vault, STR("header i"), buf_str(&sealed), &plain), -EBADMSG);
    assert_int_equal(vault_unseal(f->vault, STR(""), buf_str(&sealed), &plain), -EBADMSG);
    for (size_t i = 0; i < buf_len(&sealed); i++) {
        buf_data(&sealed)[i] ^= 1;
        assert_int_equal(vault_unseal(f->vault, STR("header i1"), buf_str(&sealed), &plain), -EBADMSG);
        buf_data(&sealed)[i] ^= 1;
        assert_int_equal(vault_unseal(f->vault, STR("header i1"), str_n(buf_data(&sealed), i), &plain), -EBADMSG);
    }
    assert_int_equal(buf_len(&plain), 0);
    buf_clear(&sealed);
    assert_int_equal(vault_seal(f->vault, STR("p"), str_n(large, sizeof(large)), &sealed), -EINVAL);
    assert_int_equal(vault_seal(f->vault, STR("p"), str_n(large, sizeof(large) - 1), &sealed), 0);
    assert_int_equal(vault_unseal(f->vault, STR("p"), buf_str(&sealed), &plain), 0);
    assert_int_equal(buf_len(&plain), SECRET_VALUE_MAX);
    buf_clear(&sealed);
    buf_clear(&plain);
    assert_int_equal(vault_seal(f->vault, STR("p"), STR(""), &sealed), 0);
    assert_int_equal(vault_unseal(f->vault, STR("p"), buf_str(&sealed), &plain), 0);
    assert_int_equal(buf_len(&plain), 0);
}

/* A named secret's box is no sealed value, whatever the purpose is called. */
static void boxes_of_the_file_are_no_sealed_values(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf file = BUF_INIT(1 << 20), plain = BUF_INIT(1 << 20);
    set(f, "name", "value");
    assert_int_equal(fd_read_file(f->dir_fd, "vault.json", &file), 0);
    const char *from = memmem(buf_data(&file), buf_len(&file), "\"box\":\"", 7);
    assert_non_null(from);
    struct str box = str_n(from + 7, strcspn(from + 7, "\""));
    assert_int_equal(vault_unseal(f->vault, STR("name"), box, &plain), -EBADMSG);
}

static void assert_expands(struct fixture *f, const char *text, const char *expected)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    buf_append_cstr(&b, "before ");
    assert_int_equal(vault_expand(f->vault, STR("p"), str_of(text), &b, &f->err), 0);
    buf_consume(&b, 7);
    assert_true(str_eqc(buf_str(&b), expected));
}

/* What had been expanded before it failed is gone, and what was there is not. */
static void assert_does_not(struct fixture *f, const char *text, enum err_code code)
{
    AUTO_BUF struct buf b = BUF_INIT(1024);
    buf_append_cstr(&b, "before ");
    assert_int_equal(vault_expand(f->vault, STR("p"), str_of(text), &b, &f->err), -1);
    assert_int_equal(f->err.code, code);
    assert_true(str_eqc(buf_str(&b), "before "));
    assert_null(memmem(b.data, b.cap, "sk-1", 4));
    assert_null(strstr(f->err.msg, "sk-1"));
}

static void templates_are_expanded(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf sealed = BUF_INIT(SEALED_MAX), broken = BUF_INIT(SEALED_MAX);
    AUTO_FREE char *text = NULL, *line = NULL, *other = NULL;
    set(f, "KEY", "sk-1");
    set(f, "odd", "$$ ${secret:KEY}");
    assert_int_equal(vault_seal(f->vault, STR("p"), STR("sealed one"), &sealed), 0);
    text = mem_printf("a ${sealed:%.*s} b", STR_ARG(buf_str(&sealed)));
    assert_expands(f, "", "");
    assert_expands(f, "plain", "plain");
    assert_expands(f, "Bearer ${secret:KEY}", "Bearer sk-1");
    assert_expands(f, "${secret:KEY}${secret:KEY}", "sk-1sk-1");
    assert_expands(f, "$$5, $${secret:KEY}", "$5, ${secret:KEY}");
    assert_expands(f, text, "a sealed one b");
    assert_expands(f, "${secret:odd}", "$$ ${secret:KEY}"); /* once only */

    assert_does_not(f, "${secret:KEY} $5", ERR_INVALID_ARGUMENT);
    assert_does_not(f, "${secret:KEY} $", ERR_INVALID_ARGUMENT);
    assert_does_not(f, "${secret:KEY} ${secret:KEY", ERR_INVALID_ARGUMENT);
    assert_does_not(f, "${secret:KEY} ${env:KEY}", ERR_INVALID_ARGUMENT);
    assert_does_not(f, "${secret:KEY} ${secret:}", ERR_INVALID_ARGUMENT);
    assert_does_not(f, "${secret:KEY} ${secret:GONE}", ERR_NOT_FOUND);
    assert_non_null(strstr(f->err.msg, "GONE"));
    assert_does_not(f, "${secret:KEY} ${sealed:AAAA}", ERR_FAILED_PRECONDITION);
    assert_does_not(f, "${secret:KEY}\r\nHost: other", ERR_INVALID_ARGUMENT);

    assert_int_equal(vault_seal(f->vault, STR("p"), STR("one\r\nTwo: three"), &broken), 0);
    line = mem_printf("${secret:KEY} ${sealed:%.*s}", STR_ARG(buf_str(&broken)));
    assert_does_not(f, line, ERR_INVALID_ARGUMENT);
    buf_clear(&broken);
    assert_int_equal(vault_seal(f->vault, STR("q"), STR("of another"), &broken), 0);
    other = mem_printf("${secret:KEY} ${sealed:%.*s}", STR_ARG(buf_str(&broken)));
    assert_does_not(f, other, ERR_FAILED_PRECONDITION);
}

static void an_expansion_is_bounded(void **state)
{
    struct fixture *f = *state;
    AUTO_BUF struct buf b = BUF_INIT(16);
    set(f, "KEY", "0123456789");
    assert_int_equal(vault_expand(f->vault, STR("p"), STR("${secret:KEY}${secret:KEY}"), &b, &f->err), -1);
    assert_int_equal(buf_len(&b), 0);
}

/* Values lie in memory that is left out of core files; where mlock() is what it says (sanitizers take it away), it is
 * locked. */
static void values_are_kept_out_of_core_files(void **state)
{
    struct fixture *f = *state;
    struct str value;
    char line[512];
    set(f, "KEY", "sk-1");
    assert_true(vault_get(f->vault, STR("KEY"), &value));
    FILE *smaps = fopen("/proc/self/smaps", "re");
    assert_non_null(smaps);
    bool is_inside = false, is_seen = false;
    while (fgets(line, sizeof(line), smaps)) {
        char *end;
        uintptr_t from = strtoul(line, &end, 16);
        if (*end == '-')
            is_inside = from <= (uintptr_t)value.p && (uintptr_t)value.p < strtoul(end + 1, NULL, 16);
        if (!is_inside || strncmp(line, "VmFlags:", 8) != 0)
            continue;
        is_seen = true;
        assert_non_null(strstr(line, " dd"));
#if !defined(__SANITIZE_ADDRESS__) && !__has_feature(address_sanitizer)
        assert_non_null(strstr(line, " lo"));
#endif
    }
    (void)fclose(smaps);
    assert_true(is_seen);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    static const struct CMUnitTest tests[] = {
        TEST(what_is_set_is_there_and_stays),
        TEST(what_cannot_be_a_secret_is_refused),
        TEST(bytes_that_are_no_text_survive),
        TEST(nothing_on_disk_is_readable_or_guessable),
        TEST(there_is_a_most),
        TEST(sealed_values_open_for_their_purpose_only),
        TEST(boxes_of_the_file_are_no_sealed_values),
        TEST(templates_are_expanded),
        TEST(an_expansion_is_bounded),
        TEST(values_are_kept_out_of_core_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
