"""The pages of people, as Quart blueprints, and the app that they are in."""
