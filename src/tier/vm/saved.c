/* SPDX-License-Identifier: Apache-2.0 */
#include "tier/vm/saved.h"
#include "base/buf.h"
#include "base/fd.h"

#include <fcntl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __x86_64__
#include <cpuid.h>
#endif

static const char saved_magic[8] = "covevm2";

void saved_describe(struct saved_machine *m)
{
    memcpy(m->magic, saved_magic, sizeof(m->magic));
#ifdef __x86_64__
    unsigned words[12] = {0};
    for (unsigned i = 0; i < 3 && !m->emulated; i++)
        (void)__get_cpuid(0x80000002 + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    memcpy(m->cpu, words, sizeof(m->cpu));
#endif
}

int saved_write(int dir_fd, const struct saved_machine *m, int devices_fd, off_t at, size_t bytes)
{
    if (bytes == 0 || bytes > SAVED_DEVICES_MAX)
        return bytes ? -EFBIG : -ENODATA;
    AUTO_CLOSE int to = openat(dir_fd, SAVED_DEVICES, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (to < 0)
        return -errno;
    for (size_t left = bytes; left;) {
        ssize_t n = sendfile(to, devices_fd, &at, left);
        if (n <= 0)
            return n < 0 ? -errno : -ENODATA;
        left -= (size_t)n;
    }
    return fd_write_file(dir_fd, SAVED_MACHINE, str_n(m, sizeof(*m)), 0444);
}

static int saved_open_file(int dir_fd, const char *name, off_t least, off_t most, int *ret_fd)
{
    struct stat st;
    AUTO_CLOSE int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) < 0)
        return errno == ENOENT ? -ENODATA : -errno;
    if (!S_ISREG(st.st_mode) || st.st_size < least || st.st_size > most)
        return -ENODATA;
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int saved_open(int dir_fd, const struct saved_machine *wanted, struct saved *ret_saved)
{
    AUTO_CLOSE int machine = -1, memory = -1, devices = -1;
    const off_t bytes = (off_t)wanted->memory_bytes;
    struct saved_machine m = {.cpus = 0};
    int r = saved_open_file(dir_fd, SAVED_MACHINE, sizeof(m), sizeof(m), &machine);
    r = r ? r : saved_open_file(dir_fd, SAVED_DEVICES, 1, SAVED_DEVICES_MAX, &devices);
    if (r == 0 && read(machine, &m, sizeof(m)) != sizeof(m))
        r = -ENODATA;
    if (r < 0)
        return r;
    m.version[sizeof(m.version) - 1] = 0;
    if (memcmp(m.magic, wanted->magic, sizeof(m.magic)) != 0 || memcmp(m.cpu, wanted->cpu, sizeof(m.cpu)) != 0 ||
        m.memory_bytes != wanted->memory_bytes || m.cpus != wanted->cpus || m.n_layers != wanted->n_layers ||
        m.emulated != wanted->emulated || m.has_net != wanted->has_net)
        return -EXDEV;
    r = saved_open_file(dir_fd, SAVED_MEMORY, bytes, bytes, &memory);
    if (r < 0)
        return r;
    *ret_saved = (struct saved){.memory_fd = TAKE_FD(memory), .devices_fd = TAKE_FD(devices)};
    memcpy(ret_saved->version, m.version, sizeof(m.version));
    return 0;
}
