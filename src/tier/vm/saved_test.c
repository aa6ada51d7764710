/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"
#include "tier/vm/saved.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

enum { BYTES = 1 << 20, AT = 100, DEVICES = 3000 };

struct place {
    char dir[64];
    int dir_fd, devices_fd;
    struct saved_machine machine;
};

static int set_up(void **state)
{
    static struct place p;
    p = (struct place){.machine = {.version = "7.2", .memory_bytes = BYTES, .cpus = 2, .n_layers = 3, .emulated = 1}};
    (void)snprintf(p.dir, sizeof(p.dir), "/tmp/saved-test-XXXXXX");
    if (!mkdtemp(p.dir))
        return -1;
    saved_describe(&p.machine);
    p.dir_fd = open(p.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    p.devices_fd = memfd_create("devices", MFD_CLOEXEC);
    *state = &p;
    return ftruncate(p.devices_fd, AT + DEVICES);
}

static int tear_down(void **state)
{
    struct place *p = *state;
    static const char *const names[] = {SAVED_MACHINE, SAVED_DEVICES, SAVED_MEMORY};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        (void)unlinkat(p->dir_fd, names[i], 0);
    (void)rmdir(p->dir);
    (void)fd_close(p->dir_fd);
    (void)fd_close(p->devices_fd);
    return 0;
}

static void save(const struct place *p)
{
    assert_int_equal(saved_write(p->dir_fd, &p->machine, p->devices_fd, AT, DEVICES), 0);
    AUTO_CLOSE int fd = openat(p->dir_fd, SAVED_MEMORY, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    assert_int_equal(ftruncate(fd, BYTES), 0);
}

static void test_it_is_for_the_same_machine(void **state)
{
    const struct place *p = *state;
    struct saved s = {-1, -1, ""};
    struct saved_machine other = p->machine;
    assert_int_equal(saved_open(p->dir_fd, &p->machine, &s), -ENODATA);
    save(p);
    other.version[0] = 'x'; /* is told, not compared */
    assert_int_equal(saved_open(p->dir_fd, &other, &s), 0);
    assert_string_equal(s.version, "7.2");
    assert_int_equal(lseek(s.devices_fd, 0, SEEK_END), DEVICES);
    assert_int_equal(lseek(s.memory_fd, 0, SEEK_END), BYTES);
    (void)fd_close(s.devices_fd);
    (void)fd_close(s.memory_fd);
    struct saved_machine others[6];
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        others[i] = p->machine;
    others[0].memory_bytes *= 2;
    others[1].cpus++;
    others[2].n_layers++;
    others[3].emulated = 0;
    others[4].has_net = 1;
    others[5].cpu[0] ^= 1;
    for (size_t i = 0; i < ARRAY_SIZE(others); i++)
        assert_int_equal(saved_open(p->dir_fd, &others[i], &s), -EXDEV);
}

static void test_what_was_cut_is_not_whole(void **state)
{
    const struct place *p = *state;
    static const char *const names[] = {SAVED_MACHINE, SAVED_DEVICES, SAVED_MEMORY};
    struct saved s = {-1, -1, ""};
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        save(p);
        AUTO_CLOSE int fd = openat(p->dir_fd, names[i], O_WRONLY | O_CLOEXEC);
        if (fd < 0 && geteuid() != 0)
            skip();
        assert_int_equal(ftruncate(fd, i == 2 ? BYTES - 1 : 0), 0);
        assert_int_equal(saved_open(p->dir_fd, &p->machine, &s), -ENODATA);
        for (size_t k = 0; k < ARRAY_SIZE(names); k++)
            assert_int_equal(unlinkat(p->dir_fd, names[k], 0), 0);
    }
    assert_int_equal(symlinkat("/dev/zero", p->dir_fd, SAVED_MACHINE), 0);
    assert_true(saved_open(p->dir_fd, &p->machine, &s) < 0);
}

static void test_a_state_has_bounds(void **state)
{
    const struct place *p = *state;
    assert_int_equal(saved_write(p->dir_fd, &p->machine, p->devices_fd, AT, 0), -ENODATA);
    assert_int_equal(saved_write(p->dir_fd, &p->machine, p->devices_fd, AT, SAVED_DEVICES_MAX + 1), -EFBIG);
    assert_int_equal(saved_write(p->dir_fd, &p->machine, p->devices_fd, AT, DEVICES + 1),
                     -ENODATA); /* it says more than there is */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_it_is_for_the_same_machine, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_what_was_cut_is_not_whole, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_a_state_has_bounds, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
