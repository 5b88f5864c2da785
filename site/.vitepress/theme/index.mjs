import Theme from 'vitepress/theme';
import './tables.css';

export default Theme;
