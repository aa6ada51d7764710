/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/fd.h"
#include "base/mem.h"
#include "config/config.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define BEGIN "-----BEGIN CERTIFICATE-----"
#define END "-----END CERTIFICATE-----"

/* The certificates of a file, and nothing else of it: it may hold a key as well. */
static int trust_add_file(struct buf *pem, const char *path, struct err *err)
{
    AUTO_BUF struct buf b = BUF_INIT(1 << 20);
    int r = fd_read_file(AT_FDCWD, path, &b);
    if (r < 0)
        return err_errno(err, r, "network.trust: read %s", path);
    (void)buf_append_char(&b, 0);
    size_t before = buf_len(pem);
    for (const char *at = buf_error(&b) ? NULL : buf_data(&b), *end; at && (at = strstr(at, BEGIN)); at = end) {
        end = strstr(at, END);
        if (!end)
            break;
        end += strlen(END);
        (void)buf_append(pem, at, (size_t)(end - at));
        (void)buf_append_char(pem, '\n');
    }
    if (buf_error(pem))
        return err_set(err, ERR_INVALID_ARGUMENT, "network.trust: more than %d KiB of certificates",
                       CONFIG_TRUST_MAX / 1024);
    return buf_len(pem) > before
               ? 0
               : err_set(err, ERR_INVALID_ARGUMENT, "network.trust: %s holds no certificate in PEM", path);
}

static int trust_is_certificate(const struct dirent *e)
{
    struct str name = str_of(e->d_name);
    return name.p[0] != '.' && (str_ends(name, STR(".crt")) || str_ends(name, STR(".pem")));
}

static int trust_add(struct buf *pem, const char *path, struct err *err)
{
    struct stat st;
    struct dirent **entries = NULL;
    if (stat(path, &st) < 0)
        return err_errno(err, errno, "network.trust: read %s", path);
    if (!S_ISDIR(st.st_mode))
        return trust_add_file(pem, path, err);
    int n = scandir(path, &entries, trust_is_certificate, alphasort), r = 0;
    if (n < 0)
        return err_errno(err, errno, "network.trust: read %s", path);
    for (int i = 0; i < n; i++) {
        AUTO_FREE char *file = mem_printf("%s/%s", path, entries[i]->d_name);
        r = r ? r : trust_add_file(pem, file, err);
        (free)(entries[i]); /* the C library's own */
    }
    (free)(entries);
    return r;
}

int config_read_trust(struct config *c, struct err *err)
{
    AUTO_BUF struct buf pem = BUF_INIT(CONFIG_TRUST_MAX);
    for (size_t i = 0; i < c->n_trust_paths; i++)
        if (trust_add(&pem, c->trust_paths[i], err) < 0)
            return -1;
    mem_free(c->trust);
    c->trust = buf_len(&pem) ? buf_take(&pem) : NULL;
    return 0;
}
