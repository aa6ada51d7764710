/* SPDX-License-Identifier: Apache-2.0 */
/* Names of templates as people give them: [namespace/]name[:tag]. Blanks around and capitals are taken and go. */
#pragma once

#include "base/err.h"
#include "base/str.h"
#include "template/template.h"

#define TEMPLATE_TAG_DEFAULT "default"

struct template_name {
    char space[TEMPLATE_NAME_MAX + 1]; /* "": none */
    char name[TEMPLATE_NAME_MAX + 1];  /* [a-z0-9_-], the first not -; so is space */
    char tag[TEMPLATE_NAME_MAX + 1];   /* [a-z0-9_.-], "default" when left out */
    bool has_tag;                      /* another one than that was given */
};

/* ERR_INVALID_ARGUMENT: "invalid template ID: ...", "invalid namespace: ...", "invalid tag: ...". */
int template_name_parse(struct str text, struct template_name *ret_name, struct err *err) WARN_UNUSED;

/* One tag alone; UUIDs are none. */
int template_tag_parse(struct str text, char ret_tag[static TEMPLATE_NAME_MAX + 1], struct err *err) WARN_UNUSED;
