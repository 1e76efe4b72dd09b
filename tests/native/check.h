#pragma once

#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <string>

/// Ends the program with a message unless `holds`.
inline void check(bool holds, const std::string& what,
                  std::source_location where = std::source_location::current()) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: check failed: %s\n", where.file_name(), where.line(), what.c_str());
  std::exit(1);
}

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
