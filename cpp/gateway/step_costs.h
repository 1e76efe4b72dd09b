#pragma once

namespace spillway::gateway {

/// Step times of the servers, linear in the tokens and requests of a step.
struct StepCosts {
  double empty_us = 6910.42;
  double prompt_token_us = 17.67;
  double decode_us = 2.84;
};

}  // namespace spillway::gateway
