"""Runs a `PersonalizedProcess` over many clients, round by round."""

from tffpers.simulation.driver import run
from tffpers.simulation.population import ClientError
from tffpers.simulation.result import Result
from tffpers.simulation.sampling import clients_of_fraction
from tffpers.simulation.store import StoreError

__all__ = ['ClientError', 'Result', 'StoreError', 'clients_of_fraction', 'run']
