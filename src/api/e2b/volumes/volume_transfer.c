/* SPDX-License-Identifier: Apache-2.0 */
/* Files of volumes, out and in, at the pace of the slower side. */
#include "api/e2b/volumes/volume_call.h"

static void transfer_open(struct file_body *f, const struct file_entry *entry UNUSED)
{
    (void)http_response_begin(f->call->req, 200, &HTTP_HEADER("content-type", "application/octet-stream"), 1, -1);
}

void volume_download(struct call *c)
{
    struct content *k = content_of(c);
    k->body.open = transfer_open;
    file_body_begun(&k->body, file_read(k->opened, &c->actor, VOLUME_USER, k->path, 0, UINT64_MAX,
                                        FILE_BODY(&k->body, &file_body_out)));
}

static void transfer_written(struct file_body *f, const struct file_entry *entry UNUSED, const struct err *err)
{
    if (err)
        call_fail_err(f->call, err);
    else
        call_step(f->call, content_change);
}

static void write_it(struct call *c)
{
    struct content *k = content_of(c);
    k->body.done = transfer_written;
    file_body_receive(
        &k->body, file_write(k->opened, &c->actor, VOLUME_USER, k->path, NULL, 0, FILE_BODY(&k->body, &file_body_in)));
}

static void on_looked(void *ctx, const struct file_entry *entry UNUSED, const struct err *err)
{
    struct call *c = ctx;
    c->file = NULL;
    if (!err)
        call_fail(c, 409, "the file exists; \"force\" replaces it");
    else if (err->code != ERR_NOT_FOUND)
        call_fail_err(c, err);
    else
        call_step(c, write_it);
}

void volume_upload(struct call *c)
{
    if (content_of(c)->force)
        write_it(c);
    else
        call_ok(c, file_stat(content_of(c)->opened, &c->actor, VOLUME_USER, content_of(c)->path, on_looked, c, &c->file,
                             &c->err));
}
