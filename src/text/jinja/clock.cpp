#include "text/jinja/clock.h"

#include <chrono>
#include <ctime>

#include "base/printable.h"
#include "base/system.h"

namespace ridge::jinja {
namespace {

constexpr std::string_view kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                      "Thursday", "Friday", "Saturday"};
constexpr std::string_view kMonths[] = {"January",   "February", "March",    "April",
                                        "May",       "June",     "July",     "August",
                                        "September", "October",  "November", "December"};

bool is_leap(int year) {
    return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
}

int days_in_month(int year, int month) {
    constexpr int kDaysOf[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return month == 2 && is_leap(year) ? 29 : kDaysOf[month - 1];
}

int day_of_year(const CivilTime& time) {  // from 1
    int day = time.day;
    for (int month = 1; month < time.month; month++) day += days_in_month(time.year, month);
    return day;
}

int day_of_week(int year, int year_day) {  // Sunday is 0; proleptic Gregorian calendar
    int64_t past = year - 1;
    return static_cast<int>((past * 365 + past / 4 - past / 100 + past / 400 + year_day) % 7);
}

struct IsoWeek {
    int year, week;
};

IsoWeek iso_week(const CivilTime& time) {
    int year = time.year, year_day = day_of_year(time);
    int week_day = (day_of_week(year, year_day) + 6) % 7;  // Monday is 0
    int week = (year_day - 1 - week_day + 10) / 7;
    auto weeks_in = [](int y) {
        int last = day_of_week(y, is_leap(y) ? 366 : 365), before = day_of_week(y, 0);
        return last == 4 || before == 3 ? 53 : 52;
    };
    if (week < 1) return {year - 1, weeks_in(year - 1)};
    if (week > weeks_in(year)) return {year + 1, 1};
    return {year, week};
}

class TimeWriter {
  public:
    explicit TimeWriter(const CivilTime& time)
        : t_(time), year_day_(day_of_year(time)), week_day_(day_of_week(time.year, year_day_)) {}

    // False: the directive is not known.
    bool append(std::string& out, char directive, bool padded) {
        padded_ = padded;
        return append_date(out, directive) || append_clock(out, directive) ||
               composed(out, directive);
    }

  private:
    bool append_date(std::string& out, char directive) const {
        switch (directive) {
            case 'a':
                return text(out, kDays[week_day_].substr(0, 3));
            case 'A':
                return text(out, kDays[week_day_]);
            case 'b':
            case 'h':
                return text(out, kMonths[t_.month - 1].substr(0, 3));
            case 'B':
                return text(out, kMonths[t_.month - 1]);
            case 'C':
                return number(out, t_.year / 100, 2);
            case 'd':
                return number(out, t_.day, 2);
            case 'e':
                return number(out, t_.day, 2, ' ');
            case 'g':
                return number(out, iso_week(t_).year % 100, 2);
            case 'G':
                return number(out, iso_week(t_).year, 1);
            case 'j':
                return number(out, year_day_, 3);
            case 'm':
                return number(out, t_.month, 2);
            case 'u':
                return number(out, week_day_ == 0 ? 7 : week_day_, 1);
            case 'U':
                return number(out, (year_day_ + 6 - week_day_) / 7, 2);
            case 'V':
                return number(out, iso_week(t_).week, 2);
            case 'w':
                return number(out, week_day_, 1);
            case 'W':
                return number(out, (year_day_ + 6 - (week_day_ + 6) % 7) / 7, 2);
            case 'y':
                return number(out, t_.year % 100, 2);
            case 'Y':
                return number(out, t_.year, 1);
            default:
                return false;
        }
    }

    bool append_clock(std::string& out, char directive) const {
        int hour12 = t_.hour % 12 == 0 ? 12 : t_.hour % 12;
        switch (directive) {
            case 'f':
                return number(out, t_.microsecond, 6);
            case 'H':
                return number(out, t_.hour, 2);
            case 'I':
                return number(out, hour12, 2);
            case 'k':
                return number(out, t_.hour, 2, ' ');
            case 'l':
                return number(out, hour12, 2, ' ');
            case 'M':
                return number(out, t_.minute, 2);
            case 'n':
                return text(out, "\n");
            case 'p':
                return text(out, t_.hour < 12 ? "AM" : "PM");
            case 'P':
                return text(out, t_.hour < 12 ? "am" : "pm");
            case 'S':
                return number(out, t_.second, 2);
            case 't':
                return text(out, "\t");
            case 'z':
            case 'Z':
                return true;  // a time without a zone
            case '%':
                return text(out, "%");
            default:
                return false;
        }
    }

    bool composed(std::string& out, char directive) {
        std::string_view parts;
        switch (directive) {
            case 'c':
                parts = "a b e H:M:S Y";
                break;
            case 'D':
            case 'x':
                parts = "m/d/y";
                break;
            case 'F':
                parts = "Y-m-d";
                break;
            case 'r':
                parts = "I:M:S p";
                break;
            case 'R':
                parts = "H:M";
                break;
            case 'T':
            case 'X':
                parts = "H:M:S";
                break;
            default:
                return false;
        }
        for (char part : parts) {
            bool letter = (part >= 'a' && part <= 'z') || (part >= 'A' && part <= 'Z');
            if (letter) {
                append(out, part, true);
            } else {
                out += part;
            }
        }
        return true;
    }

    static bool text(std::string& out, std::string_view piece) {
        out += piece;
        return true;
    }

    bool number(std::string& out, int value, int width, char fill = '0') const {
        std::string digits = std::to_string(value);
        int missing = padded_ ? width - static_cast<int>(digits.size()) : 0;
        if (missing > 0) out.append(static_cast<size_t>(missing), fill);
        out += digits;
        return true;
    }

    const CivilTime& t_;
    int year_day_, week_day_;
    bool padded_ = true;
};

}  // namespace

std::optional<CivilTime> read_date(std::string_view date) {
    CivilTime time;
    bool good = date.size() == 10 && date[4] == '-' && date[7] == '-';
    auto field = [&](size_t at, size_t n) {
        int value = 0;
        for (char c : date.substr(at, n)) {
            if (c < '0' || c > '9') good = false;
            value = value * 10 + (c - '0');
        }
        return value;
    };
    if (good) {
        time.year = field(0, 4);
        time.month = field(5, 2);
        time.day = field(8, 2);
    }
    good = good && time.year >= 1 && time.month >= 1 && time.month <= 12 && time.day >= 1 &&
           time.day <= days_in_month(time.year, time.month);
    return good ? std::optional(time) : std::nullopt;
}

CivilTime parse_date(std::string_view date) {
    std::optional<CivilTime> time = read_date(date);
    if (time) return *time;
    throw Error("date '{}': expected a day as YYYY-MM-DD, like 2026-11-29", printable(date, 40));
}

CivilTime local_time_now() {
    auto now = std::chrono::system_clock::now().time_since_epoch();
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now);
    const std::tm local = local_time(static_cast<std::time_t>(seconds.count()));
    CivilTime time;
    time.year = local.tm_year + 1900;
    time.month = local.tm_mon + 1;
    time.day = local.tm_mday;
    time.hour = local.tm_hour;
    time.minute = local.tm_min;
    time.second = local.tm_sec;
    time.microsecond = static_cast<int>(
        std::chrono::duration_cast<std::chrono::microseconds>(now - seconds).count());
    return time;
}

std::string format_time(Runtime& rt, const CivilTime& time, std::string_view format) {
    rt.touch(format.size() * 8);
    rt.charge(format.size() * 12);  // no directive gives more than 24 bytes for its two
    std::string out;
    TimeWriter writer(time);
    for (size_t at = 0; at < format.size(); at++) {
        if (format[at] != '%' || at + 1 == format.size()) {
            out += format[at];
            continue;
        }
        bool padded = format[at + 1] != '-';
        if (!padded) at++;
        char directive = at + 1 < format.size() ? format[++at] : '\0';
        if (!writer.append(out, directive, padded)) {
            rt.fail("strftime_now: unknown directive '%{}'", printable({&directive, 1}));
        }
    }
    return out;
}

}  // namespace ridge::jinja
