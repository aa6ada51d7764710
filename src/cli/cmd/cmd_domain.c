/* SPDX-License-Identifier: Apache-2.0 */
#include "base/buf.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"
#include "cli/cmd/commands.h"
#include "cli/domain/domain_store.h"
#include "cli/domain/domain_use.h"
#include "cli/print.h"
#include "config/config.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { FILE_MAX = 40 * 1024, DOMAIN_DAY_S = 86400, HTTPS = 443 };

static const struct flag flags[] = {
    {0, "cert", "FILE", "set: a certificate for *.DOMAIN in PEM, with its chain (certbot: fullchain.pem)."},
    {0, "key", "FILE", "set: its key, in PEM without a passphrase (certbot: privkey.pem)."},
};

static int64_t now_s(void)
{
    return (int64_t)(clock_real() / USEC_PER_SEC);
}

/* ---- what is said ---- */

static unsigned port_of(const struct config_listen *l)
{
    return l->address.ss_family == AF_INET ? ntohs(((const struct sockaddr_in *)&l->address)->sin_port)
                                           : ntohs(((const struct sockaddr_in6 *)&l->address)->sin6_port);
}

/* The domain as clients write it. Free with mem_free(). */
static char *as_written(const struct config *config, struct str name)
{
    unsigned port = port_of(&config->listen_tls[0]);
    return port == HTTPS ? mem_strndup(name.p, name.n) : mem_printf("%.*s:%u", STR_ARG(name), port);
}

static void say_names(const struct config *config, struct str name)
{
    bool is_local = name.n > 10 && str_eqc(str_sub(name, name.n - 10), ".localhost");
    (void)printf("\nNames: *.%.*s must lead to %s.\n", STR_ARG(name),
                 config->listen_tls[0].is_loopback ? "this machine (it listens on loopback only: see listen_tls)"
                                                   : "this machine");
    (void)fputs(
        is_local
            ? "  curl and browsers take *.localhost there by themselves; for everything else on this machine install "
              "libnss-myhostname,\n  or write each name into /etc/hosts\n"
            : "  an A or AAAA record for the wildcard does it; for tries on this machine alone, /etc/hosts with each "
              "name\n",
        stdout);
}

/* SSL_CERT_FILE and its like stand in the place of the machine's authorities, so that those must be in the file as
 * well. */
static void say_trust(const struct config *config, struct str name)
{
    AUTO_FREE char *ca = domain_store_ca(config->state_dir), *bundle = domain_store_bundle(config->state_dir);
    const char *file = bundle ? bundle : ca;
    (void)printf("export NODE_EXTRA_CA_CERTS=%s\n"
                 "export SSL_CERT_FILE=%s CURL_CA_BUNDLE=%s # Python, curl, what uses OpenSSL%s\n"
                 "# or for all programs of this machine:\n"
                 "# cp %s /usr/local/share/ca-certificates/cove-%.*s.crt && update-ca-certificates\n",
                 ca, file, file,
                 bundle ? ": the machine's authorities, and this one"
                        : "; these trust nothing else then, as this machine has no authorities of its own",
                 ca, STR_ARG(name));
}

static void print_as_json(const struct config *config, const struct domain *d, const struct tls_cert_info *info,
                          int in_use)
{
    char until[CLOCK_TEXT_MAX];
    AUTO_FREE char *ca = domain_store_ca(config->state_dir), *written = as_written(config, d->name);
    clock_format((usec_t)info->until * USEC_PER_SEC, 0, until);
    AUTO_JSON json_t *o =
        json_pack("{s:s%,s:s,s:s,s:s,s:s,s:o*,s:o*}", "domain", d->name.p, d->name.n, "source",
                  d->is_own ? "own" : "given", "until", until, "names", info->names, "e2b_domain", written, "ca",
                  d->is_own ? json_string(ca) : NULL, "in_use", in_use >= 0 ? json_boolean(in_use) : NULL);
    print_json(o);
}

static void domain_say(const struct config *config, const struct domain *d, const struct tls_cert_info *info)
{
    char until[CLOCK_TEXT_MAX];
    AUTO_FREE char *ca = domain_store_ca(config->state_dir), *written = as_written(config, d->name);
    clock_format((usec_t)info->until * USEC_PER_SEC, 0, until);
    (void)printf("%.*s, %s, until %.10s%s\n", STR_ARG(d->name),
                 d->is_own ? "with a certificate of its own CA" : "with the certificate that was given", until,
                 info->until <= now_s() ? ": EXPIRED" : "");
    (void)printf("  ports of sandboxes  https://<port>-<sandbox>.%s\n  the API             https://api.%s\n"
                 "  SDKs                export E2B_DOMAIN=%s\n",
                 written, written, written);
    say_names(config, d->name);
    if (d->is_own) {
        (void)printf("\nIts CA, for clients to trust, is %s:\n", ca);
        say_trust(config, d->name);
    }
}

/* ---- what can be done ---- */

static int domain_broken(struct context *ctx)
{
    if (ctx->err.errnum == EACCES || ctx->err.errnum == EPERM)
        context_hint(ctx, "the certificate's key is for root: use sudo");
    return context_fail(ctx, STATUS_FAILED);
}

/* 1 there is a domain, 0 there is none, -1. */
static int domain_load(struct context *ctx, struct buf *file, struct domain *ret_domain, struct tls_cert_info *ret_info)
{
    const struct config *config = context_config(ctx);
    int r = config ? domain_store_load(config->state_dir, file, ret_domain, &ctx->err) : -1;
    if (r > 0 && tls_cert_read(ret_domain->pem, ret_info) < 0)
        return err_set(&ctx->err, ERR_FAILED_PRECONDITION, "the certificate in the state directory is damaged");
    return r;
}

static int objection(struct context *ctx, enum tls_verdict verdict, const struct tls_cert_info *info, const char *name,
                     const char *cert, const char *key)
{
    char text[CLOCK_TEXT_MAX];
    const char *hint = "";
    struct err *err = &ctx->err;
    switch (verdict) {
    case TLS_CERT_GOOD:
        return 0;
    case TLS_CERT_NONE:
        (void)err_set(err, ERR_INVALID_ARGUMENT, "%s holds no certificate in PEM", cert);
        hint = "it begins with -----BEGIN CERTIFICATE-----; openssl x509 -inform DER -in FILE turns DER into it";
        break;
    case TLS_CERT_NO_KEY:
        (void)err_set(err, ERR_INVALID_ARGUMENT, "%s holds no private key in PEM, or one with a passphrase", key);
        hint = "openssl pkey -in FILE -out NEW takes a passphrase off";
        break;
    case TLS_CERT_OTHER_KEY:
        (void)err_set(err, ERR_INVALID_ARGUMENT, "the key in %s is not that of the first certificate in %s", key, cert);
        hint = "the server's own certificate comes first, then those that signed it";
        break;
    case TLS_CERT_OTHER_NAME:
        (void)err_set(err, ERR_INVALID_ARGUMENT, "the certificate is for \"%.120s\", not for *.%s", info->names, name);
        hint = "ask for one with the wildcard: sandboxes are <port>-<sandbox>.DOMAIN";
        break;
    case TLS_CERT_EXPIRED:
        clock_format((usec_t)MAX(info->until, 0) * USEC_PER_SEC, 0, text);
        (void)err_set(err, ERR_INVALID_ARGUMENT, "the certificate has expired, on %s", text);
        hint = "have it renewed first";
        break;
    case TLS_CERT_NOT_YET:
        clock_format((usec_t)MAX(info->from, 0) * USEC_PER_SEC, 0, text);
        (void)err_set(err, ERR_INVALID_ARGUMENT, "the certificate is not valid before %s", text);
        hint = "is this machine's clock right?";
        break;
    case TLS_CERT_WEAK:
        (void)err_set(err, ERR_INVALID_ARGUMENT, "OpenSSL refuses to serve with this certificate");
        hint = "its key is too short (RSA below 2048 bits) or its signature too old (SHA-1)";
        break;
    }
    context_hint(ctx, "%s", hint);
    return -1;
}

static int read_pem(struct context *ctx, const char *path, struct buf *to)
{
    int r = fd_read_file(AT_FDCWD, path, to);
    if (r == -ENOBUFS)
        return err_set(&ctx->err, ERR_INVALID_ARGUMENT, "%s is larger than %d KiB", path, FILE_MAX / 1024);
    return r < 0 ? err_errno(&ctx->err, r, "read %s", path) : 0;
}

static int put_given(struct context *ctx, const char *state_dir, const char *name, const char *cert, const char *key)
{
    struct tls_cert_info info = {0};
    AUTO_BUF struct buf chain = BUF_INIT(FILE_MAX), secret = BUF_INIT(FILE_MAX);
    if (read_pem(ctx, cert, &chain) < 0 || read_pem(ctx, key, &secret) < 0)
        return -1;
    int r =
        objection(ctx, tls_cert_check(buf_str(&chain), buf_str(&secret), name, now_s(), &info), &info, name, cert, key);
    if (r == 0)
        r = domain_store_put(state_dir, name, buf_str(&chain), buf_str(&secret), &ctx->err);
    if (secret.data)
        mem_wipe(secret.data, secret.cap);
    return r;
}

static int domain_use(struct context *ctx, const struct domain *d, const struct tls_cert_info *info, bool is_new)
{
    bool is_told = domain_tell(ctx->config), in_use = is_told && domain_await(ctx, ctx->config, d) == 0;
    if (ctx->json)
        print_as_json(ctx->config, d, info, in_use);
    else if (is_new)
        domain_say(ctx->config, d, info);
    if (is_told && !in_use)
        return context_fail(ctx, STATUS_FAILED);
    if (!ctx->json)
        (void)printf("%sThe service uses it from %s.\n", is_new ? "\n" : "",
                     in_use   ? "now on; sandboxes go on"
                     : is_new ? "its next start on: 'make start'"
                              : "its next start on");
    return STATUS_OK;
}

struct domain_options {
    const char *cert, *key;
};

static int domain_set(struct context *ctx, void *options)
{
    const struct domain_options *o = options;
    const char *name = ctx->argv[ctx->argi];
    if (!o->cert != !o->key)
        return context_usage(ctx, "--cert and --key go together");
    AUTO_BUF struct buf file = BUF_INIT(DOMAIN_FILE_MAX);
    struct domain d;
    struct tls_cert_info info;
    const struct config *config = context_config(ctx);
    if (!config)
        return context_fail(ctx, STATUS_FAILED);
    if (!domain_is_name(str_of(name))) {
        (void)err_set(&ctx->err, ERR_INVALID_ARGUMENT, "\"%.64s\" is not a domain that can have names below it", name);
        context_hint(
            ctx,
            "two labels or more, in lower case, no port: sandbox.example.org, or sandbox.localhost for this machine");
        return context_fail(ctx, STATUS_FAILED);
    }
    if (config->domain && strcmp(config->domain, name) != 0) {
        (void)err_set(&ctx->err, ERR_FAILED_PRECONDITION, "the configuration says domain %s", config->domain);
        context_hint(ctx, "take it out there (and COVE_DOMAIN), or set that one");
        return context_fail(ctx, STATUS_FAILED);
    }
    if (domain_check_ports(ctx, config) < 0)
        return context_fail(ctx, STATUS_FAILED);
    int r = o->cert ? put_given(ctx, config->state_dir, name, o->cert, o->key)
                    : domain_store_make(config->state_dir, name, &ctx->err);
    if (r < 0 || domain_load(ctx, &file, &d, &info) <= 0)
        return domain_broken(ctx);
    return domain_use(ctx, &d, &info, true);
}

static int no_domain(struct context *ctx)
{
    (void)err_set(&ctx->err, ERR_NOT_FOUND, "there is no domain");
    context_hint(ctx, "'cove domain set DOMAIN' sets one");
    return context_fail(ctx, STATUS_FAILED);
}

/* For what is said of a domain that is there. */
static int cmd_domain_tell(struct context *ctx, void (*print)(const struct config *config, const struct domain *d,
                                                              const struct tls_cert_info *info))
{
    AUTO_BUF struct buf file = BUF_INIT(DOMAIN_FILE_MAX);
    struct domain d;
    struct tls_cert_info info;
    int r = domain_load(ctx, &file, &d, &info);
    if (r < 0)
        return domain_broken(ctx);
    if (r == 0)
        return no_domain(ctx);
    if (ctx->json)
        print_as_json(ctx->config, &d, &info, -1);
    else
        print(ctx->config, &d, &info);
    return STATUS_OK;
}

static int domain_show(struct context *ctx, void *options UNUSED)
{
    return cmd_domain_tell(ctx, domain_say);
}

static void print_trust(const struct config *config, const struct domain *d, const struct tls_cert_info *info UNUSED)
{
    if (d->is_own)
        say_trust(config, d->name);
    else
        (void)printf("# the certificate was given, so that its CA is not ours to trust: ask who signed it\n");
}

static int trust(struct context *ctx, void *options UNUSED)
{
    return cmd_domain_tell(ctx, print_trust);
}

static int unset(struct context *ctx, void *options UNUSED)
{
    const struct config *config = context_config(ctx);
    int r = config ? domain_store_remove(config->state_dir, &ctx->err) : -1;
    if (r < 0)
        return domain_broken(ctx);
    if (r == 0)
        return no_domain(ctx);
    bool in_use = domain_tell(config);
    if (ctx->json)
        (void)printf("{\"unset\":true,\"in_use\":%s}\n", in_use ? "true" : "false");
    else
        (void)printf("there is no domain any more%s; its CA stays in %s/" DOMAIN_DIR " for the next time\n",
                     in_use ? "" : " from the service's next start on", config->state_dir);
    return STATUS_OK;
}

/* Until when it is good, for a person: what runs this by itself reads nothing. */
static int say_until(struct context *ctx, const struct domain *d, const struct tls_cert_info *info)
{
    char until[CLOCK_TEXT_MAX];
    clock_format((usec_t)MAX(info->until, 0) * USEC_PER_SEC, 0, until);
    if (ctx->json)
        print_as_json(ctx->config, d, info, -1);
    else if (isatty(STDIN_FILENO) == 1)
        (void)printf("the certificate for *.%.*s is good until %.10s%s\n", STR_ARG(d->name), until,
                     d->is_own ? "; the service makes a new one when less than 30 days are left" : "");
    return STATUS_OK;
}

/* What coved runs at its start and again and again. Silent then, when there is nothing to do. */
static int domain_renew(struct context *ctx, void *options UNUSED)
{
    AUTO_BUF struct buf file = BUF_INIT(DOMAIN_FILE_MAX), renewed = BUF_INIT(DOMAIN_FILE_MAX);
    struct domain d;
    struct tls_cert_info info;
    int r = domain_load(ctx, &file, &d, &info);
    if (r < 0)
        return domain_broken(ctx);
    if (r == 0)
        return isatty(STDIN_FILENO) == 1 ? no_domain(ctx) : STATUS_OK;
    if (info.until - now_s() > (int64_t)TLS_CERT_RENEW_DAYS * DOMAIN_DAY_S)
        return say_until(ctx, &d, &info);
    if (!d.is_own) {
        (void)fprintf(
            stderr, "cove domain: the certificate for *.%.*s ends in %lld days: give a new one to 'cove domain set'\n",
            STR_ARG(d.name), (long long)MAX(info.until - now_s(), 0) / DOMAIN_DAY_S);
        return STATUS_OK;
    }
    AUTO_FREE char *name = mem_strndup(d.name.p, d.name.n);
    if (domain_store_make(ctx->config->state_dir, name, &ctx->err) < 0)
        return domain_broken(ctx);
    (void)fprintf(stderr, "cove domain: the certificate for *.%s was renewed\n", name);
    if (domain_load(ctx, &renewed, &d, &info) <= 0)
        return domain_broken(ctx);
    /* What was renewed by hand is shown to clients at once; when coved had it done, it looks by itself. */
    return domain_is_asked_by_service() ? STATUS_OK : domain_use(ctx, &d, &info, false);
}

static int domain_run(struct context *ctx)
{
    static const struct command_form forms[] = {{"set", domain_set, 1, 1, "set takes one domain"},
                                                {"show", domain_show, 0, 0, "show takes no operand"},
                                                {"trust", trust, 0, 0, "trust takes no operand"},
                                                {"unset", unset, 0, 0, "unset takes no operand"},
                                                {"renew", domain_renew, 0, 0, "renew takes no operand"}};
    struct domain_options o = {0};
    if (CONTEXT_READ(ctx, {"cert", .text = &o.cert}, {"key", .text = &o.key}) < 0)
        return context_exit(ctx);
    (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (!context_operands(ctx))
        return context_check_form(ctx, "show") == STATUS_OK ? domain_show(ctx, &o) : STATUS_USAGE;
    return context_form(ctx, forms, ARRAY_SIZE(forms), &o);
}

const struct command cmd_domain = {
    .name = "domain",
    .summary = "set the domain that sandboxes are reached by over TLS",
    .text = &text_domain,
    .operands = "=set show trust unset renew",
    COMMAND_FLAGS(flags),
    .is_local = true,
    .run = domain_run,
};
