/* SPDX-License-Identifier: Apache-2.0 */
#include "api/e2b/envd/download_head.h"
#include "http/message.h"
#include "http/url.h"

#include <time.h>

enum { SNIFF_MAX = 512 };

static const struct {
    const char *extension;
    struct content_type type;
} types[] = {
    {".txt", {"text/plain; charset=utf-8", false}},
    {".md", {"text/markdown; charset=utf-8", false}},
    {".csv", {"text/csv; charset=utf-8", false}},
    {".html", {"text/html; charset=utf-8", false}},
    {".htm", {"text/html; charset=utf-8", false}},
    {".css", {"text/css; charset=utf-8", false}},
    {".js", {"text/javascript; charset=utf-8", false}},
    {".mjs", {"text/javascript; charset=utf-8", false}},
    {".xml", {"text/xml; charset=utf-8", false}},
    {".json", {"application/json", false}},
    {".wasm", {"application/wasm", false}},
    {".svg", {"image/svg+xml", false}},
    {".png", {"image/png", true}},
    {".jpg", {"image/jpeg", true}},
    {".jpeg", {"image/jpeg", true}},
    {".gif", {"image/gif", true}},
    {".webp", {"image/webp", true}},
    {".avif", {"image/avif", true}},
    {".pdf", {"application/pdf", true}},
    {".mp3", {"audio/mpeg", true}},
    {".mp4", {"video/mp4", true}},
    {".webm", {"video/webm", true}},
    {".zip", {"application/zip", true}},
    {".gz", {"application/gzip", true}},
    {".tgz", {"application/gzip", true}},
    {".xz", {"application/x-xz", true}},
    {".zst", {"application/zstd", true}},
    {".tar", {"application/x-tar", false}},
};

const struct content_type *content_type_by_name(struct str name)
{
    for (size_t i = 0; i < ARRAY_SIZE(types); i++) {
        struct str extension = str_of(types[i].extension);
        if (name.n > extension.n && str_eq_nocase(str_sub(name, name.n - extension.n), extension))
            return &types[i].type;
    }
    return NULL;
}

const struct content_type *content_type_by_bytes(struct str first)
{
    static const struct content_type text = {"text/plain; charset=utf-8", false},
                                     bytes = {"application/octet-stream", false};
    for (size_t i = 0; i < first.n && i < SNIFF_MAX; i++) {
        unsigned char c = (unsigned char)first.p[i];
        if (c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f' && c != 0x1b)
            return &bytes;
    }
    return &text;
}

bool content_type_is_inert(const struct content_type *type)
{
    static const char *const inert[] = {"text/plain",       "text/markdown", "text/csv",
                                        "application/json", "audio/",        "video/"};
    struct str name = str_of(type->name);
    for (size_t i = 0; i < ARRAY_SIZE(inert); i++)
        if (str_starts(name, str_of(inert[i])))
            return true;
    return str_starts(name, STR("image/")) && !str_eqc(name, "image/svg+xml");
}

void content_disposition_append(struct buf *b, const struct content_type *type, struct str name)
{
    buf_append_cstr(b, content_type_is_inert(type) ? "inline; filename" : "attachment; filename");
    if (!str_is_of(name, " -~")) {
        buf_append_cstr(b, "*=utf-8''");
        url_encode(b, name, false);
    } else if (http_is_token(name)) {
        buf_append_char(b, '=');
        buf_append_str(b, name);
    } else {
        buf_append_cstr(b, "=\"");
        for (size_t i = 0; i < name.n; i++) {
            if (name.p[i] == '"' || name.p[i] == '\\')
                buf_append_char(b, '\\');
            buf_append_char(b, name.p[i]);
        }
        buf_append_char(b, '"');
    }
}

/* Not strftime(): the names are English whatever the locale. */
void http_date_format(usec_t real, char ret_text[static HTTP_DATE_MAX])
{
    static const char days[] = "SunMonTueWedThuFriSat", months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t seconds = (time_t)(real / USEC_PER_SEC);
    struct tm tm;
    if (!gmtime_r(&seconds, &tm) || tm.tm_year > 9999 - 1900) {
        seconds = 0;
        gmtime_r(&seconds, &tm);
    }
    snprintf(ret_text, HTTP_DATE_MAX, "%.3s, %02u %.3s %04u %02u:%02u:%02u GMT", days + 3 * tm.tm_wday,
             (unsigned)tm.tm_mday % 100, months + 3 * tm.tm_mon, (unsigned)(tm.tm_year + 1900) % 10000,
             (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100);
}

int http_date_parse(struct str text, usec_t *ret_real)
{
    char copy[HTTP_DATE_MAX];
    struct tm tm = {0};
    const char *end;
    time_t seconds;
    if (text.n >= sizeof(copy))
        return -EINVAL;
    snprintf(copy, sizeof(copy), "%.*s", STR_ARG(text));
    end = strptime(copy, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end)
        return -EINVAL;
    seconds = timegm(&tm);
    if (seconds < 0)
        return -EINVAL;
    *ret_real = (usec_t)seconds * USEC_PER_SEC;
    return 0;
}
