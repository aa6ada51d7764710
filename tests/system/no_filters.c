/* SPDX-License-Identifier: Apache-2.0 */
/* Preloaded into coved: while the first byte of the file $NO_FILTERS is 1 the kernel has no room for a sandbox's system
 * call filter; the second counts that. */
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { ENOTSUPP = 524, LONG = 250 /* instructions: no other filter has so many */ };

static volatile unsigned char *state;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("NO_FILTERS");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    void *p = fd < 0 ? MAP_FAILED : mmap(NULL, 2, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p != MAP_FAILED)
        state = p;
    if (fd >= 0)
        (void)close(fd);
}

long syscall(long nr, ...)
{
    long a[6], r;
    va_list ap;
    va_start(ap, nr);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(ap, long);
    va_end(ap);
    if (nr == SYS_seccomp && a[0] == SECCOMP_SET_MODE_FILTER && state && state[0] &&
        ((const struct sock_fprog *)a[2])->len > LONG) {
        state[1]++;
        errno = ENOTSUPP;
        return -1;
    }
    register long r10 __asm__("r10") = a[3], r8 __asm__("r8") = a[4], r9 __asm__("r9") = a[5];
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (r < 0 && r > -4096) {
        errno = (int)-r;
        return -1;
    }
    return r;
}
