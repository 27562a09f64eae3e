#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "text/jinja/runtime.h"

namespace ridge::jinja {

// A moment as a calendar and a clock on the wall show it.
struct CivilTime {
    int year = 1970, month = 1, day = 1;  // month and day from 1
    int hour = 0, minute = 0, second = 0, microsecond = 0;
};

// "2026-11-29" at midnight; empty for anything but a day that the calendar has.
std::optional<CivilTime> read_date(std::string_view date);
CivilTime parse_date(std::string_view date);  // the same, or an Error that names it
CivilTime local_time_now();

// strftime in the C locale, of a time without a zone. A directive that is not known is an Error.
std::string format_time(Runtime& rt, const CivilTime& time, std::string_view format);

}  // namespace ridge::jinja
