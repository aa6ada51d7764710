/* SPDX-License-Identifier: Apache-2.0 */
#include "coved/identity.h"
#include "base/child.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"
#include "config/config.h"
#include "coved/listen.h"
#include "coved/workers/renewer.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HTTPS = 443 };

static unsigned port_of(const struct config_listen *l)
{
    return l->address.ss_family == AF_INET ? ntohs(((const struct sockaddr_in *)&l->address)->sin_port)
                                           : ntohs(((const struct sockaddr_in6 *)&l->address)->sin6_port);
}

int identity_prepare(struct identity *i, const struct config *config, const char *program_dir, bool renews,
                     struct err *err)
{
    buf_init(&i->file, DOMAIN_FILE_MAX);
    i->state_fd = open(config->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (i->state_fd < 0)
        return err_errno(err, errno, "open %s", config->state_dir);
    AUTO_FREE char *program = mem_printf("%s/cove", program_dir),
                   *file = mem_printf("%s/" DOMAIN_FILE, config->state_dir);
    /* The start goes on whatever comes of it: the certificate there is may do for long. */
    if (renews && faccessat(i->state_fd, DOMAIN_FILE, F_OK, 0) == 0 && renewer_run(program) < 0)
        log_warn("'cove domain renew' failed: the certificate stays as it is");
    const struct renewer_spec spec = {program, file, RENEWER_EVERY_MS};
    if (renewer_start(&spec, &i->renewer, err) < 0 || identity_load(i, config, err) < 0)
        return -1;
    /* At the start alone: who takes a domain away later knows. */
    if (!i->domain.name.p && config->asks_for_tls)
        log_warn("listen_tls is %s, but nothing listens there until 'cove domain set DOMAIN' provides a certificate",
                 config->listen_tls[0].text);
    return 0;
}

/* 1 read, 0 there is none. */
static int identity_read_file(const struct identity *i, struct buf *b, struct err *err)
{
    AUTO_CLOSE int fd = openat(i->state_fd, DOMAIN_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    struct stat st;
    if (fd < 0 && errno == ENOENT)
        return 0;
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_errno(err, errno, "open " DOMAIN_FILE);
    if (st.st_uid != 0 || st.st_mode & 077 || !S_ISREG(st.st_mode))
        return err_set(err, ERR_FAILED_PRECONDITION,
                       "%s holds a private key, so only root may have access to it: 'cove domain set' corrects that",
                       DOMAIN_FILE);
    int r = fd_read_all(fd, b);
    return r < 0 ? err_errno(err, r, "read " DOMAIN_FILE) : 1;
}

/* Browsers, curl and many resolvers take every name below localhost for this machine. */
static char *domain_without_setup(const struct config *config)
{
    return config->n_listen ? mem_printf("localhost:%u", port_of(&config->listen[0])) : NULL;
}

static void adopt(struct identity *i, struct buf *file, const struct domain *domain, const struct config *config)
{
    unsigned port = port_of(&config->listen_tls[0]);
    if (i->file.data)
        mem_wipe(i->file.data, i->file.cap);
    buf_fini(&i->file);
    mem_free(i->text);
    i->file = *file;
    *file = BUF_INIT(0);
    i->domain = *domain;
    i->text = !domain->name.p && config->domain ? mem_strdup(config->domain)
              : !domain->name.p                 ? domain_without_setup(config)
              : port == HTTPS                   ? mem_strndup(domain->name.p, domain->name.n)
                                                : mem_printf("%.*s:%u", STR_ARG(domain->name), port);
}

int identity_load(struct identity *i, const struct config *config, struct err *err)
{
    AUTO_BUF struct buf file = BUF_INIT(DOMAIN_FILE_MAX);
    struct domain domain = {STR_NULL, STR_NULL, false};
    int r = identity_read_file(i, &file, err);
    if (r < 0)
        return r;
    if (r > 0 && domain_parse(buf_str(&file), &domain) < 0)
        return err_set(err, ERR_FAILED_PRECONDITION, "%s/%s is damaged: run 'cove domain set' again", config->state_dir,
                       DOMAIN_FILE);
    if (domain.name.p && config->domain && !str_eqc(domain.name, config->domain))
        return err_set(
            err, ERR_FAILED_PRECONDITION,
            "the configuration says domain %s, but the certificate is for %.*s: run 'cove domain set %s', or remove "
            "domain from the configuration",
            config->domain, STR_ARG(domain.name), config->domain);
    adopt(i, &file, &domain, config);
    return 0;
}

int identity_listen(const struct identity *i, const struct config *config, usec_t patience, struct listeners *l,
                    struct err *err)
{
    bool are_open = false;
    for (size_t k = 0; k < l->n; k++)
        are_open |= l->at[k].is_tls;
    if (i->domain.name.p && !are_open)
        return listen_open_tls(config, patience, l, err);
    if (!i->domain.name.p)
        listen_close_tls(l);
    return 0;
}

void identity_close(struct identity *i)
{
    if (i->file.data)
        mem_wipe(i->file.data, i->file.cap);
    buf_fini(&i->file);
    mem_free(i->text);
    child_kill(i->renewer);
    *i = (struct identity){.state_fd = fd_close(i->state_fd)};
}
