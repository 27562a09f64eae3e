#include "base/utf8.h"

namespace ridge {

Utf8Char decode_utf8(std::string_view text) {
    auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
    uint8_t lead = byte(0);
    if (lead < 0x80) return {lead, 1, true, false};
    int n_more;
    uint32_t code;
    uint8_t low = 0x80, high = 0xbf;  // allowed range of the second byte: Unicode 15, table 3-7
    if (lead >= 0xc2 && lead <= 0xdf) {
        n_more = 1, code = lead & 0x1fu;
    } else if (lead >= 0xe0 && lead <= 0xef) {
        n_more = 2, code = lead & 0x0fu;
        if (lead == 0xe0) low = 0xa0;
        if (lead == 0xed) high = 0x9f;
    } else if (lead >= 0xf0 && lead <= 0xf4) {
        n_more = 3, code = lead & 0x07u;
        if (lead == 0xf0) low = 0x90;
        if (lead == 0xf4) high = 0x8f;
    } else {
        return {0xfffd, 1, false, false};
    }
    for (int i = 1; i <= n_more; i++) {
        if (static_cast<size_t>(i) >= text.size())
            return {0xfffd, static_cast<uint8_t>(i), false, true};
        uint8_t next = byte(i);
        if (next < low || next > high) return {0xfffd, static_cast<uint8_t>(i), false, false};
        code = code << 6 | (next & 0x3fu);
        low = 0x80, high = 0xbf;
    }
    return {code, static_cast<uint8_t>(n_more + 1), true, false};
}

void append_utf8(std::string& out, uint32_t code) {
    if (code < 0x80) {
        out += static_cast<char>(code);
    } else if (code < 0x800) {
        out += static_cast<char>(0xc0 | code >> 6);
        out += static_cast<char>(0x80 | (code & 0x3f));
    } else if (code < 0x10000) {
        out += static_cast<char>(0xe0 | code >> 12);
        out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (code & 0x3f));
    } else {
        out += static_cast<char>(0xf0 | code >> 18);
        out += static_cast<char>(0x80 | (code >> 12 & 0x3f));
        out += static_cast<char>(0x80 | (code >> 6 & 0x3f));
        out += static_cast<char>(0x80 | (code & 0x3f));
    }
}

}  // namespace ridge
