/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/audit/form.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/events.h"
#include "cli/service.h"

enum {
    FORM_AUDIT = 13 * 8,
    FORM_WARNING = 4,
    FORM_INFO = 6,
    FORM_MSGID_MAX = 32
}; /* RFC 5424, sections 6.2.1, 6.2.7 */

const char form_names[] = "jsonl, syslog or otlp";

static bool form_is_warning(struct str kind)
{
    static const char *const ends[] = {".failed", ".denied", ".refused", ".violation", ".lost", ".misuse"};
    for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
        if (str_ends(kind, str_of(ends[i])))
            return true;
    return false;
}

static const char *form_kind(const json_t *event)
{
    return json_object_get(event, "gap") ? "gap" : service_text(event, "kind");
}

static void form_write_jsonl(struct buf *b, const json_t *event UNUSED, struct str line, const char *host UNUSED)
{
    buf_append_str(b, line);
}

/* The object in the message is what readers of CEE events (rsyslog's mmjsonparse, syslog-ng's json-parser) take
 * apart. */
static void form_write_syslog(struct buf *b, const json_t *event, struct str line, const char *host)
{
    const char *kind = form_kind(event), *time = service_text(event, "time");
    buf_printf(
        b, "<%d>1 %s %s cove - %.*s - @cee: ", FORM_AUDIT + (form_is_warning(str_of(kind)) ? FORM_WARNING : FORM_INFO),
        *time ? time : "-", host, FORM_MSGID_MAX, *kind ? kind : "-");
    buf_append_str(b, line);
}

static json_t *form_attribute(const char *key, const char *value)
{
    return json_pack("{s:s,s:{s:s}}", "key", key, "value", "stringValue", value);
}

/* A line of OTLP's file form: a request with one record. What the service exports itself has the same names. */
static void form_write_otlp(struct buf *b, const json_t *event, struct str line UNUSED, const char *host)
{
    static const char *const texts[] = {"sandbox", "actor", "source", "grade", "hash"};
    const char *kind = form_kind(event);
    const bool warns = form_is_warning(str_of(kind));
    usec_t time = 0;
    char number[32], at[32];
    (void)!clock_parse(str_of(service_text(event, "time")), &time);
    (void)snprintf(at, sizeof(at), "%llu000", (unsigned long long)time);
    json_t *attributes = json_array();
    for (size_t i = 0; i < 2; i++) {
        const json_t *n = json_object_get(event, i ? "seq" : "cursor");
        uint64_t value = n ? (uint64_t)json_integer_value(n) : events_number(event);
        (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)value);
        if (n || !i)
            (void)json_array_append_new(attributes, form_attribute(i ? "cove.seq" : "cove.cursor", number));
    }
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        char name[32];
        (void)snprintf(name, sizeof(name), "cove.%s", texts[i]);
        if (*service_text(event, texts[i]))
            (void)json_array_append_new(attributes, form_attribute(name, service_text(event, texts[i])));
    }
    const json_t *data = json_object_get(event, "gap") ? json_object_get(event, "gap") : json_object_get(event, "data");
    AUTO_FREE char *body = json_dumps(data, JSON_COMPACT);
    json_t *record = json_pack("{s:s,s:s,s:i,s:s,s:s,s:{s:s},s:o}", "timeUnixNano", at, "observedTimeUnixNano", at,
                               "severityNumber", warns ? 13 : 9, "severityText", warns ? "WARN" : "INFO", "eventName",
                               kind, "body", "stringValue", body ? body : "", "attributes", attributes);
    AUTO_JSON json_t *all =
        json_pack("{s:[{s:{s:[o,o]},s:[{s:{s:s},s:[o]}]}]}", "resourceLogs", "resource", "attributes",
                  form_attribute("service.name", "cove"), form_attribute("host.name", host), "scopeLogs", "scope",
                  "name", "cove", "logRecords", record);
    AUTO_FREE char *text = json_dumps(all, JSON_COMPACT);
    buf_append_cstr(b, text ? text : "");
}

static const json_t *form_find_event(const json_t *object)
{
    return object;
}

static const json_t *form_first(const json_t *object, const char *name)
{
    return json_array_get(json_object_get(object, name), 0);
}

static const json_t *form_find_otlp(const json_t *object)
{
    const json_t *record = form_first(form_first(form_first(object, "resourceLogs"), "scopeLogs"), "logRecords");
    const json_t *attribute = form_first(record, "attributes");
    return strcmp(service_text(attribute, "key"), "cove.cursor") == 0
               ? json_object_get(json_object_get(attribute, "value"), "stringValue")
               : NULL;
}

static const struct form forms[] = {
    {"jsonl", ".jsonl", form_write_jsonl, form_find_event, ""},
    {"syslog", ".log", form_write_syslog, form_find_event, " cove - "},
    {"otlp", ".otlp.jsonl", form_write_otlp, form_find_otlp, ""},
};

const struct form *form_of_file(const char *suffix)
{
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        if (strcmp(forms[i].suffix, suffix) == 0)
            return &forms[i];
    return NULL;
}

const struct form *form_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(forms); i++)
        if (strcmp(forms[i].name, name) == 0)
            return &forms[i];
    return NULL;
}

uint64_t form_cursor(const struct form *form, struct str line)
{
    const char *head = *form->before ? memmem(line.p, line.n, form->before, strlen(form->before)) : line.p;
    const char *open = head ? memchr(head, '{', line.n - (size_t)(head - line.p)) : NULL;
    uint64_t number = 0;
    if (!open)
        return 0;
    AUTO_JSON json_t *object =
        json_loadb(open, line.n - (size_t)(open - line.p), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    const json_t *found = form->find(object);
    if (json_is_string(found))
        return str_to_u64(str_of(json_string_value(found)), &number) < 0 ? 0 : number;
    return json_object_get(found, "gap") || json_object_get(found, "cursor") ? events_number(found) : 0;
}
