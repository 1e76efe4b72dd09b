// Runs the cases whose name (`gateway/bands/a_full_band_refuses_every_tenant`) contains one of the
// arguments; without any, all of them. `--list` names them.
#include <cstdio>
#include <cstdlib>
#include <span>

#include "check.h"

namespace {

struct Named {
  std::string name;
  Case run;
};

std::vector<Named>& cases() {
  static std::vector<Named> all;  // filled before main, in any order of the files
  return all;
}

bool is_meant(const std::string& name, std::span<char*> filters) {
  for (const char* filter : filters) {
    if (name.find(filter) != std::string::npos) return true;
  }
  return filters.empty();
}

}  // namespace

Suite::Suite(std::string_view names, const std::vector<Case>& functions,
             std::source_location where) {
  constexpr std::string_view folder = "native/";
  std::string suite = where.file_name();
  suite.erase(0, suite.rfind(folder) + folder.size());
  suite.resize(suite.rfind("_test"));
  for (const Case function : functions) {
    const std::size_t end = names.find(',');
    cases().push_back({suite + "/" + std::string(names.substr(0, end)), function});
    names.remove_prefix(end == std::string_view::npos ? names.size() : end + 2);
  }
}

void check(bool holds, const std::string& what, std::source_location where) {
  if (holds) return;
  std::fprintf(stderr, "%s:%u: check failed: %s\n", where.file_name(), where.line(), what.c_str());
  std::exit(1);
}

int main(int count, char** arguments) {
  const std::span<char*> filters{arguments + 1, arguments + count};
  const bool only_lists = !filters.empty() && std::string_view(filters[0]) == "--list";
  int found = 0;
  for (const auto& [name, run] : cases()) {
    if (!only_lists && !is_meant(name, filters)) continue;
    ++found;
    // Before it runs: the last name is that of a case that ends the program.
    std::puts(name.c_str());
    std::fflush(stdout);
    if (!only_lists) run();
  }
  if (found == 0) std::fputs("no case has such a name\n", stderr);
  return found == 0 ? 1 : 0;
}
