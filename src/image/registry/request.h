/* SPDX-License-Identifier: Apache-2.0 */
/* What a job asks for: the first line of job.h, checked. */
#pragma once

#include "base/err.h"
#include "image/registry/http.h"
#include "image/registry/manifest.h"
#include "image/registry/reference.h"

struct job_request {
    bool archive;
    int archive_fd;         /* owned; -1: none */
    char ref[REF_NAME_MAX]; /* of an image in an archive; "": the only one */
    struct reference image; /* unless archive */
    struct platform platform;
    char *username, *password, *token; /* owned, secret; NULL: none */
    struct http_hosts hosts;
};

int job_request_parse(struct str line, struct job_request *ret_request, struct err *err) WARN_UNUSED;

/* Waits for the line, 10 s at most. */
int job_request_read(int sock, struct job_request *ret_request, struct err *err) WARN_UNUSED;
void job_request_fini(struct job_request *q);
