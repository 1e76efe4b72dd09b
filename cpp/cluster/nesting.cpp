#include "cluster/nesting.h"

#include <string>

#include "sim/error.h"

namespace spillway::cluster {

namespace {

thread_local Nesting place_of_thread;

}  // namespace

Nesting nesting() { return place_of_thread; }

InsideRun::InsideRun() {
  if (place_of_thread.depth == 0) place_of_thread.was_refused = &was_refused_;
  if (place_of_thread.depth >= kMostNested || *place_of_thread.was_refused) {
    *place_of_thread.was_refused = true;
    throw sim::NestingError("runs are nested in the policies of others more than " +
                            std::to_string(kMostNested) +
                            " deep: does a policy run the simulation that it is part of?");
  }
  ++place_of_thread.depth;
}
InsideRun::~InsideRun() {
  if (--place_of_thread.depth == 0) place_of_thread.was_refused = nullptr;
}

WorkingFor::WorkingFor(const Nesting& other) : before_(place_of_thread) { place_of_thread = other; }
WorkingFor::~WorkingFor() { place_of_thread = before_; }

}  // namespace spillway::cluster
