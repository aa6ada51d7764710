/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The domain and its certificate (config/domain.h) as coved has them: it reads the file, for root alone, and hands what
 * it says to cove-api. What a certificate is, is none of its business: `cove domain renew` looks after that.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "config/domain.h"

struct config;
struct listeners;

struct identity {
    int state_fd;         /* owned: the state directory */
    struct buf file;      /* what `domain` borrows */
    struct domain domain; /* name.p NULL: none was set */
    pid_t renewer;        /* keeps the certificate from ending; 0: none */
    char *text;           /* owned: the domain as clients write it, with the port where it is not 443; NULL: none */
};

#define IDENTITY_NONE ((struct identity){.state_fd = -1})

/* While the host's files can be seen: a certificate of our own that ends soon is made anew (renews: now; that may take
 * long), then identity_load(). The same is done every 12 hours from then on; SIGUSR1 tells of it. */
int identity_prepare(struct identity *i, const struct config *config, const char *program_dir, bool renews,
                     struct err *err) WARN_UNUSED;

/* What the file says now; no file is fine. When it fails, all is as it was. */
int identity_load(struct identity *i, const struct config *config, struct err *err) WARN_UNUSED;

/* Opens or closes the listeners with TLS, as the domain asks for; patience: as with listen_open_tls(). */
int identity_listen(const struct identity *i, const struct config *config, usec_t patience, struct listeners *l,
                    struct err *err) WARN_UNUSED;

void identity_close(struct identity *i);
