/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/diff/diff_own.h"
#include "base/fd.h"
#include "base/str.h"
#include "kernel/netns.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TEXT_MAX = 512 };

/* As tier/container.c writes them; a name is at the end of the text, a line break behind it. */
static const struct own {
    const char *path, *text;
    bool has_name;
} own_files[] = {
    {"etc/hostname", "", true},
    {"etc/hosts", "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 ", true},
    {"etc/resolv.conf", "nameserver " NETNS_DNS_ADDRESS "\noptions timeout:3 attempts:2\n", false},
};

/* "cove-", six of [a-z0-9], a hexadecimal number */
static bool is_box_name(struct str name)
{
    static const char first[] = "cove-";
    const size_t n = sizeof(first) - 1, random = 6;
    if (name.n <= n + random || name.n > n + random + 8 || memcmp(name.p, first, n) != 0)
        return false;
    for (size_t i = n; i < name.n; i++) {
        char c = name.p[i], last = i < n + random ? 'z' : 'f';
        if (!((c >= '0' && c <= '9') || (c >= 'a' && c <= last)))
            return false;
    }
    return true;
}

static bool is_text(const struct own *o, struct str text, const char *box)
{
    const size_t n = strlen(o->text);
    if (text.n < n || memcmp(text.p, o->text, n) != 0)
        return false;
    text = str_sub(text, n);
    if (!o->has_name)
        return text.n == 0;
    if (text.n == 0 || text.p[text.n - 1] != '\n')
        return false;
    text.n--;
    return box ? str_eqc(text, box) : is_box_name(text);
}

bool diff_is_own(struct str path, const struct found *f, const char *box)
{
    char text[TEXT_MAX];
    struct stat st;
    const struct own *o = own_files, *end = own_files + ARRAY_SIZE(own_files);
    while (o < end && !str_eqc(path, o->path))
        o++;
    if (o == end || !f->is_there || f->st.st_mode != (S_IFREG | 0644) || f->st.st_uid != 0 || f->st.st_gid != 0)
        return false;
    AUTO_CLOSE int fd = openat(f->dir_fd, f->name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return false;
    ssize_t n = pread(fd, text, sizeof(text), 0);
    return n >= 0 && (size_t)n < sizeof(text) && is_text(o, str_n(text, (size_t)n), box);
}
