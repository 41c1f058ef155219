"""Looking at models: attention as arrays, pages and pictures, and plots of scores."""
