/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A certificate into a sandbox, by the agent: as a file of its own, and appended to the bundle that most programs read, unless it is in there. Java keeps
 * its own store, which nothing here changes.
 */
#include "base/mem.h"
#include "sandbox/files.h"
#include "sandbox/network_internal.h"

enum { BUNDLE_MAX = 4 << 20 };

static const struct actor actor = {.name = "network"};

struct ca_install {
    struct sandbox *sb; /* a reference */
    struct file_call *call;
    char *pem;
    struct buf bundle;
    struct str rest; /* of what is being written */
    bool appends;    /* the bundle is being written, not the file */
    network_fn done;
    void *ctx;
};

void ca_install_cancel(struct ca_install *i)
{
    if (!i)
        return;
    file_call_cancel(TAKE_PTR(i->call));
    buf_fini(&i->bundle);
    mem_free(i->pem);
    sandbox_unref(i->sb);
    mem_free(i);
}

static void finish(struct ca_install *i, const struct err *err)
{
    network_fn done = i->done;
    void *ctx = i->ctx;
    struct err why;
    if (err) {
        why = *err;
        (void)err_prefix(&why, "install the certificate");
    }
    ca_install_cancel(i);
    done(ctx, err ? &why : NULL);
}

static void on_room(void *ctx)
{
    struct ca_install *i = ctx;
    if (!i->rest.p)
        return;
    i->rest = str_sub(i->rest, file_write_data(i->call, i->rest));
    if (i->rest.n)
        return;
    i->rest = STR_NULL;
    file_write_eof(i->call);
}

static int read_bundle(struct ca_install *i, struct err *err);

static void on_written(void *ctx, const struct file_entry *entry, const struct err *err)
{
    struct ca_install *i = ctx;
    struct err local;
    (void)entry;
    i->call = NULL;
    if (err)
        finish(i, err);
    else if (i->appends)
        finish(i, NULL);
    else if (read_bundle(i, &local) < 0)
        finish(i, &local);
}

static int write_file(struct ca_install *i, const char *path, struct str bytes, struct err *err)
{
    static const struct file_write_ops ops = {.on_ready = on_room, .on_end = on_written};
    i->rest = bytes;
    return file_write(i->sb, &actor, STR("root"), str_of(path), NULL, 0, &ops, i, &i->call, err);
}

static void on_bundle_open(void *ctx, const struct file_entry *entry)
{
    (void)ctx;
    (void)entry;
}

static void on_bundle(void *ctx, struct str bytes)
{
    struct ca_install *i = ctx;
    (void)buf_append_str(&i->bundle, bytes);
    file_read_ack(i->call, bytes.n);
}

static void on_bundle_read(void *ctx, const struct err *err)
{
    struct ca_install *i = ctx;
    struct err local;
    struct str all = buf_str(&i->bundle), pem = str_of(i->pem);
    i->call = NULL;
    if (err && err->code != ERR_NOT_FOUND) {
        finish(i, err);
        return;
    }
    if (all.n && memmem(all.p, all.n, pem.p, pem.n)) {
        finish(i, NULL);
        return;
    }
    if (all.n && all.p[all.n - 1] != '\n')
        (void)buf_append_char(&i->bundle, '\n');
    (void)buf_append_str(&i->bundle, pem);
    i->appends = true;
    int r = buf_error(&i->bundle) ? err_set(&local, ERR_FAILED_PRECONDITION, "%s is longer than %d MiB",
                                            NETWORK_CA_BUNDLE, BUNDLE_MAX >> 20)
                                  : write_file(i, NETWORK_CA_BUNDLE, buf_str(&i->bundle), &local);
    if (r < 0)
        finish(i, &local);
}

static int read_bundle(struct ca_install *i, struct err *err)
{
    static const struct file_read_ops ops = {on_bundle_open, on_bundle, on_bundle_read};
    return file_read(i->sb, &actor, STR("root"), STR(NETWORK_CA_BUNDLE), 0, BUNDLE_MAX + 1, &ops, i, &i->call, err);
}

int ca_install(struct sandbox *sb, const char *pem, network_fn done, void *ctx, struct ca_install **ret_install,
               struct err *err)
{
    struct ca_install *i = mem_new(struct ca_install);
    *i = (struct ca_install){
        .sb = sandbox_ref(sb), .pem = mem_strdup(pem), .bundle = BUF_INIT(BUNDLE_MAX), .done = done, .ctx = ctx};
    if (write_file(i, NETWORK_CA_FILE, str_of(i->pem), err) < 0) {
        ca_install_cancel(i);
        return err_prefix(err, "install the certificate");
    }
    *ret_install = i;
    return 0;
}
