/* SPDX-License-Identifier: Apache-2.0 */
/* Templates in E2B's API: lists, builds, uploads, tags. Handlers by file; routes are in control.c. */
#pragma once

#include "api/e2b/control/control.h"
#include "build/builder.h"
#include "template/builds.h"

/* templates.c */
void templates_list(struct call *c); /* all; v2: in pages */
void templates_list_v2(struct call *c);
void templates_get(struct call *c); /* with its builds */
route_handler templates_alias, templates_publish, templates_delete;

/* templates_build.c */
route_handler templates_request, templates_start;
void templates_status(struct call *c); /* what: "status", or the "logs" alone */
void templates_upload_link(struct call *c);
void templates_upload(struct call *c); /* needs no key: the link is a secret */
int templates_upload_status(const struct err *err);

/* templates_tags.c */
route_handler templates_tags_add, templates_tags_remove, templates_tags_list;

/* Shared by them. */
struct template_registry *templates_of(const struct call *c);
const char *templates_status_name(enum template_status status);
json_t *templates_names(const struct template_info *info, bool bare); /* bare: without their namespaces */
json_t *templates_time(usec_t at);                                    /* never null: clients insist on one */
/* The changes are durable, or undone and the call is answered: false. */
bool templates_committed(struct call *c);
/* As handlers get names: percent-decoded, checked. NULL info: answered. */
bool templates_find(struct call *c, struct str ref, struct template_info *ret_info);
