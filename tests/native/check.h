#pragma once

#include <source_location>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Ends the program with a message unless `holds`.
void check(bool holds, const std::string& what,
           std::source_location where = std::source_location::current());

/// Ends the program unless calling `action` throws an Error.
template <class Error, class Action>
void check_throws(const Action& action, const std::string& what,
                  std::source_location where = std::source_location::current()) {
  try {
    action();
  } catch (const Error&) {
    return;
  }
  check(false, what + ": nothing was thrown", where);
}

using Case = void (*)();

/// Registers cases before main. `names` are those of the functions, with commas between; the suite
/// is named after its file: `gateway/bands` in tests/native/gateway/bands_test.cpp.
struct Suite {
  Suite(std::string_view names, const std::vector<Case>& cases,
        std::source_location where = std::source_location::current());
};

/// The functions of a file that are its cases, each named after its function. Their names are
/// unique in their folder, because several files may be compiled as one.
#define CASES(...) const Suite SUITE_NUMBER(__COUNTER__)(#__VA_ARGS__, {__VA_ARGS__})
#define SUITE_NUMBER(count) SUITE_NAME(count)
#define SUITE_NAME(count) suite_##count
