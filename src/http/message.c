/* SPDX-License-Identifier: Apache-2.0 */
#include "http/message.h"
#include "base/buf.h"

const char *http_status_text(int status)
{
    static const struct {
        int status;
        const char *text;
    } texts[] = {
        {200, "OK"},
        {204, "No Content"},
        {100, "Continue"},
        {101, "Switching Protocols"},
        {103, "Early Hints"},
        {201, "Created"},
        {202, "Accepted"},
        {206, "Partial Content"},
        {301, "Moved Permanently"},
        {302, "Found"},
        {303, "See Other"},
        {304, "Not Modified"},
        {307, "Temporary Redirect"},
        {308, "Permanent Redirect"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {402, "Payment Required"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {408, "Request Timeout"},
        {409, "Conflict"},
        {410, "Gone"},
        {411, "Length Required"},
        {412, "Precondition Failed"},
        {413, "Content Too Large"},
        {414, "URI Too Long"},
        {415, "Unsupported Media Type"},
        {416, "Range Not Satisfiable"},
        {417, "Expectation Failed"},
        {422, "Unprocessable Content"},
        {425, "Too Early"},
        {426, "Upgrade Required"},
        {428, "Precondition Required"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {501, "Not Implemented"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {504, "Gateway Timeout"},
        {505, "HTTP Version Not Supported"},
        {507, "Insufficient Storage"},
    };
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        if (texts[i].status == status)
            return texts[i].text;
    }
    return "Status";
}

bool http_is_token(struct str s)
{
    return s.n > 0 && str_is_of(s, "A-Za-z0-9!#$%&'*+.^_`|~-");
}

bool http_is_field_value(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if ((c < 0x20 && c != '\t') || c == 0x7f)
            return false;
    }
    return s.n == 0 || (str_trim(s).n == s.n);
}

void http_append_field(struct buf *b, struct str name, struct str value)
{
    buf_append_str(b, name);
    buf_append(b, ": ", 2);
    buf_append_str(b, value);
    buf_append(b, "\r\n", 2);
}

bool http_list_has(struct str value, struct str token)
{
    for (struct str part; str_split(&value, ',', &part);) {
        if (str_eq_nocase(str_trim(part), token))
            return true;
    }
    return false;
}

bool http_param_next(struct str *params, struct str *ret_name, struct str *ret_value)
{
    struct str s = str_trim(*params);
    while (s.n && s.p[0] == ';')
        s = str_trim(str_sub(s, 1));
    if (s.n == 0) {
        *params = STR_NULL;
        return false;
    }
    *params = s; /* not empty: malformed, unless we get to the end */
    ssize_t eq = str_find_char(s, '=');
    if (eq < 0 || !http_is_token(str_n(s.p, (size_t)eq)))
        return false;
    struct str name = str_n(s.p, (size_t)eq);
    struct str rest = str_sub(s, (size_t)eq + 1);
    struct str value;
    if (rest.n && rest.p[0] == '"') {
        size_t i = 1;
        while (i < rest.n && rest.p[i] != '"')
            i += rest.p[i] == '\\' ? 2 : 1;
        if (i >= rest.n)
            return false;
        value = str_n(rest.p + 1, i - 1);
        rest = str_trim(str_sub(rest, i + 1));
    } else {
        ssize_t end = str_find_char(rest, ';');
        value = str_trim(end < 0 ? rest : str_n(rest.p, (size_t)end));
        rest = end < 0 ? STR_NULL : str_sub(rest, (size_t)end);
    }
    if (rest.n && rest.p[0] != ';')
        return false;
    *params = rest;
    *ret_name = name;
    *ret_value = value;
    return true;
}
