#include "cluster/nesting.h"

#include <memory>
#include <thread>
#include <vector>

#include "check.h"
#include "sim/error.h"

namespace {

using spillway::cluster::InsideRun;
using spillway::cluster::nesting;
using spillway::cluster::WorkingFor;
using spillway::sim::NestingError;

void runs_are_nested_to_a_depth() {
  for (int again = 0; again < 2; ++again) {
    std::vector<std::unique_ptr<InsideRun>> runs;
    for (std::size_t i = 0; i < InsideRun::kMostNested; ++i) {
      check(nesting().depth == i, "depth");
      runs.push_back(std::make_unique<InsideRun>());
    }
    check_throws<NestingError>([] { const InsideRun run; }, "one more");
    while (runs.size() > 1) runs.pop_back();
    check_throws<NestingError>([] { const InsideRun run; }, "another try in the same run");
    runs.pop_back();
    check(nesting().depth == 0, "outside");
  }
  const InsideRun run;
  const InsideRun inner;
}

void threads_that_work_for_a_run_are_inside_it() {
  const InsideRun outer;
  const auto place = nesting();
  std::thread([&] {
    check(nesting().depth == 0, "a thread of its own");
    {
      const WorkingFor caller(place);
      std::vector<std::unique_ptr<InsideRun>> runs;
      while (runs.size() + 1 < InsideRun::kMostNested) {
        runs.push_back(std::make_unique<InsideRun>());
      }
      check_throws<NestingError>([] { const InsideRun run; }, "too deep in all");
    }
    check(nesting().depth == 0, "its own again");
    const InsideRun run;
  }).join();
  check_throws<NestingError>([] { const InsideRun run; }, "the run has been refused one");
}

}  // namespace

CASES(runs_are_nested_to_a_depth, threads_that_work_for_a_run_are_inside_it);
